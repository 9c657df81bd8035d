package electortest

import (
	"slices"
	"time"
)

// A mode is that of an advisory lock: the two that pg_locks shows for them.
type mode int

const (
	exclusive mode = iota // ExclusiveLock
	shared                // ShareLock
)

func (m mode) conflicts(other mode) bool { return m == exclusive || other == exclusive }

// A scope is how long a lock is held: until it is unlocked, or until the
// transaction ends.
type scope int

const (
	bySession scope = iota
	byTransaction
)

// lockID names an advisory lock. A bigint and two integers are different key
// spaces, told apart by objsubid (PostgreSQL manual, 54.12).
type lockID struct {
	objsubid int // 1 for a bigint, 2 for two integers
	key      int64
}

func bigint(key int64) lockID { return lockID{objsubid: 1, key: key} }

func twoIntegers(high, low int64) lockID { return pair(high<<32 | int64(uint32(low))) }

// pair is the lock of the two integers that are the halves of a key.
func pair(key int64) lockID { return lockID{objsubid: 2, key: key} }

// A lockTable is the server's, of advisory locks only. The server's mutex guards it.
type lockTable struct {
	locks map[lockID]*lock
	room  int // how many pairs of a lock and a backend there may be; 0 is no limit
	used  int
}

type lock struct {
	holders []*holder // in the order in which they came
	queue   []*waiter
}

// A holder counts how often a backend has been granted a lock.
type holder struct {
	b      *backend
	counts [2][2]int // by scope and mode
}

func (h *holder) holds(m mode) bool { return h.counts[bySession][m]+h.counts[byTransaction][m] > 0 }
func (h *holder) idle() bool        { return !h.holds(exclusive) && !h.holds(shared) }

// A waiter is a backend's place in the queue for a lock.
type waiter struct {
	b       *backend
	id      lockID
	mode    mode
	scope   scope
	since   time.Time
	granted chan struct{} // closed once it is
}

func (w *waiter) isGranted() bool {
	select {
	case <-w.granted:
		return true
	default:
		return false
	}
}

// try grants the lock if that is possible at once. As in PostgreSQL, one that is
// held already is granted again, and must be unlocked as often; and nobody
// overtakes a waiter whose mode conflicts.
func (t *lockTable) try(b *backend, id lockID, m mode, s scope) (granted bool, err error) {
	l := t.locks[id]
	if l == nil {
		l = &lock{}
	}
	own := l.holder(b)
	if own == nil || !own.holds(m) {
		if l.hasConflict(b, m) || slices.ContainsFunc(l.queue, func(w *waiter) bool { return w.mode.conflicts(m) }) {
			return false, nil
		}
	}
	if own == nil {
		if own, err = t.admit(l, b); err != nil {
			return false, err
		}
	}
	own.counts[s][m]++
	t.locks[id] = l
	return true, nil
}

// wait is try that queues if the lock is busy. The waiter is nil if it was granted.
func (t *lockTable) wait(b *backend, id lockID, m mode, s scope) (*waiter, error) {
	granted, err := t.try(b, id, m, s)
	if granted || err != nil {
		return nil, err
	}
	w := &waiter{b: b, id: id, mode: m, scope: s, since: time.Now(), granted: make(chan struct{})}
	t.locks[id].queue = append(t.locks[id].queue, w)
	return w, nil
}

// leave takes a waiter that was not granted its lock out of the queue.
func (t *lockTable) leave(w *waiter) {
	l := t.locks[w.id]
	l.queue = slices.DeleteFunc(l.queue, func(other *waiter) bool { return other == w })
	t.wake(w.id, l)
}

// unlock takes one grant of the session back, and reports whether there was one.
func (t *lockTable) unlock(b *backend, id lockID, m mode) bool {
	l := t.locks[id]
	if l == nil {
		return false
	}
	own := l.holder(b)
	if own == nil || own.counts[bySession][m] == 0 {
		return false
	}
	own.counts[bySession][m]--
	t.settle(id, l)
	return true
}

// release takes back all that a backend was granted in one of the scopes.
func (t *lockTable) release(b *backend, s scope) {
	for _, id := range t.of(b) {
		l := t.locks[id]
		if own := l.holder(b); own != nil {
			own.counts[s] = [2]int{}
			t.settle(id, l)
		}
	}
}

// forget takes a backend out of everything.
func (t *lockTable) forget(b *backend) {
	for _, id := range t.of(b) {
		l := t.locks[id]
		l.queue = slices.DeleteFunc(l.queue, func(w *waiter) bool { return w.b == b })
		if own := l.holder(b); own != nil {
			own.counts = [2][2]int{}
		}
		t.settle(id, l)
	}
}

// of lists the locks that a backend holds or waits for, in a fixed order.
func (t *lockTable) of(b *backend) (ids []lockID) {
	for id, l := range t.locks {
		if l.holder(b) != nil || slices.ContainsFunc(l.queue, func(w *waiter) bool { return w.b == b }) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, lockID.compare)
	return ids
}

func (l *lock) holder(b *backend) *holder {
	for _, h := range l.holders {
		if h.b == b {
			return h
		}
	}
	return nil
}

func (l *lock) hasConflict(b *backend, m mode) bool {
	return slices.ContainsFunc(l.holders, func(h *holder) bool {
		return h.b != b && (h.holds(exclusive) || m == exclusive && h.holds(shared))
	})
}

func (t *lockTable) admit(l *lock, b *backend) (*holder, error) {
	if t.room > 0 && t.used >= t.room {
		return nil, newError(outOfMemory, "out of shared memory")
	}
	t.used++
	own := &holder{b: b}
	l.holders = append(l.holders, own)
	return own, nil
}

// settle forgets who holds nothing any more, and wakes who waited for that.
func (t *lockTable) settle(id lockID, l *lock) {
	before := len(l.holders)
	l.holders = slices.DeleteFunc(l.holders, (*holder).idle)
	t.used -= before - len(l.holders)
	t.wake(id, l)
}

// wake grants the lock to those in the queue that can have it, first come, first
// served: none overtakes one before it that conflicts.
func (t *lockTable) wake(id lockID, l *lock) {
	var left []*waiter
	for _, w := range l.queue {
		ahead := slices.ContainsFunc(left, func(other *waiter) bool { return other.mode.conflicts(w.mode) })
		if ahead || l.hasConflict(w.b, w.mode) {
			left = append(left, w)
			continue
		}
		own := l.holder(w.b)
		if own == nil {
			t.used++ // room was made for it when it queued
			own = &holder{b: w.b}
			l.holders = append(l.holders, own)
		}
		own.counts[w.scope][w.mode]++
		close(w.granted)
	}
	l.queue = left
	if len(l.holders) == 0 && len(left) == 0 {
		delete(t.locks, id)
	}
}

func (id lockID) compare(other lockID) int {
	switch {
	case id == other:
		return 0
	case id.objsubid < other.objsubid || id.objsubid == other.objsubid && id.key < other.key:
		return -1
	}
	return 1
}
