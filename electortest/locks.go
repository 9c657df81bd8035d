package electortest

import (
	"slices"
	"time"
)

// A mode is the mode of an advisory lock.
type mode int

const (
	exclusive mode = iota // ExclusiveLock
	shared                // ShareLock
)

func (m mode) conflicts(other mode) bool { return m == exclusive || other == exclusive }

// A scope says how long a lock is held: until unlock, or until the transaction ends.
type scope int

const (
	bySession scope = iota
	byTransaction
)

// lockID identifies an advisory lock. objsubid tells the two key spaces apart (PostgreSQL
// manual, 54.12).
type lockID struct {
	objsubid int // 1 for bigint, 2 for two integers
	key      int64
}

func bigint(key int64) lockID { return lockID{objsubid: 1, key: key} }

func twoIntegers(high, low int64) lockID { return pair(high<<32 | int64(uint32(low))) }

// pair returns the lock of two integers, the halves of key.
func pair(key int64) lockID { return lockID{objsubid: 2, key: key} }

// A lockTable holds the server's advisory locks. The server's mutex guards it.
type lockTable struct {
	locks map[lockID]*lock
	size  int // the maximum of used; 0 means no limit
	used  int // pairs of a lock and a backend
}

type lock struct {
	holders []*holder // in order of their grants
	queue   []*waiter
}

// A holder counts a backend's grants of a lock.
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
	granted chan struct{} // closed by the grant
}

func (w *waiter) isGranted() bool {
	select {
	case <-w.granted:
		return true
	default:
		return false
	}
}

// try grants the lock if that is possible at once. As in PostgreSQL, a lock that the backend
// holds is granted again, and must be unlocked as often. Nobody overtakes a conflicting
// waiter.
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

// wait is like try, but queues if the lock is busy. The waiter is nil if the lock was
// granted.
func (t *lockTable) wait(b *backend, id lockID, m mode, s scope) (*waiter, error) {
	granted, err := t.try(b, id, m, s)
	if granted || err != nil {
		return nil, err
	}
	w := &waiter{b: b, id: id, mode: m, scope: s, since: time.Now(), granted: make(chan struct{})}
	t.locks[id].queue = append(t.locks[id].queue, w)
	return w, nil
}

// leave removes a waiter from the queue.
func (t *lockTable) leave(w *waiter) {
	l := t.locks[w.id]
	l.queue = slices.DeleteFunc(l.queue, func(other *waiter) bool { return other == w })
	t.wake(w.id, l)
}

// unlock revokes one grant of the session, and reports whether there was one.
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

// release revokes all of a backend's grants of one scope.
func (t *lockTable) release(b *backend, s scope) {
	for _, id := range t.of(b) {
		l := t.locks[id]
		if own := l.holder(b); own != nil {
			own.counts[s] = [2]int{}
			t.settle(id, l)
		}
	}
}

// grants counts the locks that a backend's transaction holds.
func (t *lockTable) grants(b *backend) map[lockID][2]int {
	all := map[lockID][2]int{}
	for _, id := range t.of(b) {
		if own := t.locks[id].holder(b); own != nil {
			all[id] = own.counts[byTransaction]
		}
	}
	return all
}

// restore revokes what a backend's transaction was granted since grants.
func (t *lockTable) restore(b *backend, grants map[lockID][2]int) {
	for _, id := range t.of(b) {
		l := t.locks[id]
		if own := l.holder(b); own != nil {
			own.counts[byTransaction] = grants[id]
			t.settle(id, l)
		}
	}
}

// forget removes a backend from all locks and queues.
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

// of lists the locks that a backend holds or waits for, in order.
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
	if t.size > 0 && t.used >= t.size {
		return nil, newError(outOfMemory, "out of shared memory")
	}
	t.used++
	own := &holder{b: b}
	l.holders = append(l.holders, own)
	return own, nil
}

// settle removes holders without grants, and wakes waiters.
func (t *lockTable) settle(id lockID, l *lock) {
	before := len(l.holders)
	l.holders = slices.DeleteFunc(l.holders, (*holder).idle)
	t.used -= before - len(l.holders)
	t.wake(id, l)
}

// wake grants the lock to waiters in order. None overtakes a conflicting one before it.
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
			t.used++ // may exceed size
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
