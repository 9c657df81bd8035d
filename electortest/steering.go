package electortest

import (
	"encoding/binary"
	"hash/fnv"
)

// offerKey returns the lock with which a leader offers its lock to a candidate. PostgreSQL
// uses another hash (hashtextextended); any deterministic one will do.
func offerKey(candidate string, key int64) lockID {
	h := fnv.New64a()
	_ = binary.Write(h, binary.BigEndian, key)
	_, _ = h.Write([]byte(candidate))
	return bigint(int64(h.Sum64()))
}

func (x *execution) name() string { return nameOfBackend(x.backend) }

// hasOffer reports whether the leader of an election offers its lock to a candidate.
func (x *execution) hasOffer(candidate string, key int64) (bool, error) {
	offer := offerKey(candidate, key)
	free, err := x.server.locks.try(x.backend, offer, shared, bySession)
	if free {
		x.server.locks.unlock(x.backend, offer, shared)
	}
	return !free, err
}

func tryLocks(x *execution, m *message) (a Answer, err error) {
	keys, err := m.integers(0)
	for _, key := range keys {
		granted, err := x.server.locks.try(x.backend, bigint(key), exclusive, bySession)
		outcome := "granted"
		if err == nil && !granted {
			offer := offerKey(x.name(), key)
			granted, err = x.server.locks.try(x.backend, offer, shared, bySession)
			outcome = "offered"
			if granted {
				x.server.locks.unlock(x.backend, offer, shared)
				outcome = "busy"
			}
		}
		if err != nil {
			return Answer{}, err
		}
		a.Rows = append(a.Rows, []any{key, outcome})
	}
	return a, err
}

// unlockAndNotify sends no notification: a notifier needs a real driver. Server.Trace shows
// the statement.
func unlockAndNotify(x *execution, m *message) (Answer, error) { return unlock(x, m) }

func unlockMany(x *execution, m *message) (a Answer, err error) {
	locks, err := decode[[]struct{ Key int64 }](m.text(0))
	for _, l := range locks {
		a.Rows = append(a.Rows, []any{l.Key, x.server.locks.unlock(x.backend, bigint(l.Key), exclusive)})
	}
	return a, err
}

func notify(*execution, *message) (Answer, error) { return one(true), nil }

func offerTransfer(x *execution, m *message) (Answer, error) {
	offer := offerKey(m.text(1), m.integer(2))
	offered, err := x.server.locks.try(x.backend, offer, exclusive, m.scopeOf(0))
	return one(offered, offer.key), err
}

func offerStands(x *execution, m *message) (Answer, error) {
	offered, err := x.hasOffer(x.name(), m.integer(0))
	return one(offered), err
}

func unlockTo(x *execution, m *message) (Answer, error) {
	key, candidate := m.integer(0), m.text(1)
	queue := x.server.queue(key)
	first := len(queue) > 0 && nameOfBackend(queue[0].b) == candidate
	released := first && m.bool(2) && x.server.locks.unlock(x.backend, bigint(key), exclusive)
	h := x.server.holder(bigint(key))
	return one(first, released, released && h != nil && nameOfBackend(h) == candidate), nil
}

func nameOfBackend(b *backend) string {
	name, _ := b.settings.get("application_name")
	return name
}

// queue returns the queue for an election's lock.
func (s *Server) queue(key int64) []*waiter {
	if l := s.locks.locks[bigint(key)]; l != nil {
		return l.queue
	}
	return nil
}
