package electortest

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/pgelector/pgelector/db"
)

// role is the only role. It may see everything.
const role = "postgres"

// seen returns a backend's row of pg_stat_activity.
func seen(b *backend) []any {
	application, _ := b.settings.get("application_name")
	return []any{int64(b.pid), application, role, "", b.started.UnixMicro()}
}

// micros returns a time in microseconds, or 0 for none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func holderOf(x *execution, m *message) (a Answer, err error) {
	id := bigint(m.integer(0))
	if h := x.server.holder(id); h != nil {
		a.Rows = append(a.Rows, append(append(seen(h), x.server.told(h)...), "", "", micros(h.asked), time.Now().UnixMicro()))
	} else if all := x.server.sharers(id); len(all) > 0 {
		a.Rows = append(a.Rows, append(append(seen(all[0]), x.server.told(all[0])...), "ShareLock", "", micros(all[0].asked), time.Now().UnixMicro()))
	}
	return a, nil
}

// sharers returns the backends that share a lock, by process id. There are no prepared transactions.
func (s *Server) sharers(id lockID) (all []*backend) {
	if l := s.locks.locks[id]; l != nil {
		for _, h := range l.holders {
			if h.holds(shared) {
				all = append(all, h.b)
			}
		}
	}
	slices.SortFunc(all, func(a, b *backend) int { return int(a.pid - b.pid) })
	return all
}

// A follower holds a seat of an election, or waits for its lock.
type follower struct {
	*backend
	seated bool
	since  time.Time // since when it waits; zero if it does not
}

// followers are those without the leader: who holds a seat, then the waiters in order.
func (s *Server) followers(key, seat int64) (all []follower) {
	for _, id := range []lockID{pair(min(seat, seat^1)), pair(max(seat, seat^1))} {
		if h := s.holder(id); h != nil && h != s.holder(bigint(key)) {
			all = append(all, follower{backend: h, seated: true})
		}
	}
	for _, w := range s.queue(key) {
		if i := slices.IndexFunc(all, func(f follower) bool { return f.backend == w.b }); i >= 0 {
			all[i].since = w.since
		} else {
			all = append(all, follower{backend: w.b, since: w.since})
		}
	}
	return all
}

func deputies(x *execution, m *message) (a Answer, err error) {
	for _, f := range x.server.followers(m.integer(0), m.integer(1)) {
		a.Rows = append(a.Rows, append(seen(f.backend), f.seated, micros(f.since)))
	}
	return a, nil
}

func leaders(x *execution, m *message) (a Answer, err error) {
	keys, err := m.integers(0)
	for _, key := range keys {
		if h := x.server.holder(bigint(key)); h != nil {
			a.Rows = append(a.Rows, []any{key, int64(h.pid), nameOfBackend(h), x.server.overdue(h).Milliseconds()})
		}
	}
	return a, err
}

func largestHolder(x *execution, m *message) (a Answer, err error) {
	keys, err := m.integers(0)
	held := map[*backend]int{}
	var largest *backend
	for _, key := range keys {
		h := x.server.holder(bigint(key))
		if h == nil {
			continue
		}
		held[h]++
		if largest == nil || held[h] > held[largest] || held[h] == held[largest] && h.pid < largest.pid {
			largest = h
		}
	}
	if largest != nil {
		a.Rows = append(a.Rows, []any{int64(largest.pid), nameOfBackend(largest)})
	}
	return a, err
}

func advisoryLocks(x *execution, m *message) (a Answer, err error) {
	keys, err := m.integers(0)
	tells := map[*backend][]any{}
	add := func(key int64, leads bool, f follower, blocks string) {
		row := append([]any{key, leads, f.seated}, seen(f.backend)...)
		if tells[f.backend] == nil {
			tells[f.backend] = x.server.told(f.backend)
		}
		row = append(append(row, micros(f.since), micros(f.asked)), tells[f.backend]...)
		a.Rows = append(a.Rows, append(row, blocks, ""))
	}
	for _, row := range x.server.lockRows() {
		if row.Guard || len(keys) > 0 && !slices.Contains(keys, row.Key) || len(a.Rows) > 0 && a.Rows[len(a.Rows)-1][0] == row.Key {
			continue
		}
		leader, followers := x.server.holder(bigint(row.Key)), x.server.followers(row.Key, seatKey(row.Key))
		if leader != nil {
			add(row.Key, true, follower{backend: leader}, "")
		}
		for _, f := range followers {
			add(row.Key, false, f, "")
		}
		if leader == nil && len(keys)+len(followers) > 0 {
			for _, b := range x.server.sharers(bigint(row.Key)) {
				add(row.Key, false, follower{backend: b}, "ShareLock")
			}
		}
	}
	a.Rows = a.Rows[:min(len(a.Rows), db.MostRows)]
	return a, err
}

// seatKey is the key of an election's seats.
func seatKey(key int64) int64 {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("pgelector seat:"), uint64(key)))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// hasOffer reports whether somebody holds the lock of an offer.
func (x *execution) hasOffer(offer lockID) (bool, error) {
	free, err := x.server.locks.try(x.backend, offer, shared, bySession)
	if free {
		x.server.locks.unlock(x.backend, offer, shared)
	}
	return !free, err
}

// A pairOf is an element of a JSON argument: a lock of two integers of an election.
type pairOf struct{ Key, High, Low int64 }

func tryLocks(x *execution, m *message) (a Answer, err error) {
	offers, err := decode[[]pairOf](m.text(0))
	for _, offer := range offers {
		granted, err := x.server.locks.try(x.backend, bigint(offer.Key), exclusive, bySession)
		outcome := "granted"
		if err == nil && !granted {
			outcome = "busy"
			if granted, err = x.hasOffer(twoIntegers(offer.High, offer.Low)); granted {
				outcome = "offered"
			}
		}
		if err != nil {
			return Answer{}, err
		}
		a.Rows = append(a.Rows, []any{offer.Key, outcome, int64(x.pid)})
	}
	return a, err
}

func unlockMany(x *execution, m *message) (a Answer, err error) {
	keys, err := m.integers(0)
	for _, key := range keys {
		a.Rows = append(a.Rows, []any{key, x.server.locks.unlock(x.backend, bigint(key), exclusive)})
	}
	return a, err
}

// notify sends no notification: a notifier needs a real driver. Server.Trace shows the
// statement.
func notify(*execution, *message) (Answer, error) { return one(true), nil }

func unlockPair(x *execution, m *message) (Answer, error) {
	return one(x.server.locks.unlock(x.backend, twoIntegers(m.integer(0), m.integer(1)), exclusive)), nil
}

func holderOffers(x *execution, m *message) (Answer, error) {
	leader, offers := x.server.holder(bigint(m.integer(0))), x.server.holder(pair(m.integer(1)))
	return one(leader != nil && leader == offers), nil
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
