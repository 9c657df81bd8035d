package electortest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scopeOf returns the scope of a lock by the argument inside.
func (m *message) scopeOf(i int) scope {
	if m.bool(i) {
		return byTransaction
	}
	return bySession
}

func tryLock(x *execution, m *message) (Answer, error) {
	key := m.integer(1)
	outcome, seated, err := x.attempt(key, twoIntegers(m.integer(2), m.integer(3)), m.bool(4), [2]int64{m.integer(5), m.integer(6)}, m.text(7), bySession)
	leader, id := int64(0), ""
	if h := x.server.holder(bigint(key)); h != nil && m.bool(0) && outcome != "granted" {
		leader = int64(h.pid)
		id, _ = h.settings.get("application_name")
	}
	return one(outcome, seated, int64(x.pid), leader, id), err
}

func tryTransactionLock(x *execution, m *message) (Answer, error) {
	outcome, seated, err := x.attempt(m.integer(0), twoIntegers(m.integer(1), m.integer(2)), m.bool(3), [2]int64{m.integer(4), m.integer(5)}, m.text(6), byTransaction)
	return one(outcome, seated, int64(x.pid), x.server.start(), x.mark()), err
}

// attempt is the CASE of TryLock, whose branches are taken in order, and what follows from it.
func (x *execution) attempt(key int64, offer lockID, sit bool, seat [2]int64, settings string, s scope) (outcome string, seated bool, err error) {
	if x.server.recovery {
		return "standby", false, nil
	}
	granted, err := x.server.locks.try(x.backend, bigint(key), exclusive, s)
	if err != nil {
		return "", false, err
	}
	outcome = "granted"
	if !granted {
		if offered, err := x.hasOffer(offer); offered || err != nil {
			return "offered", false, err
		}
		if !sit {
			return "busy", false, nil
		}
		outcome = "deputy"
	}
	seated, err = x.sit(seat[0], seat[1], s)
	if err != nil || !granted && !seated {
		return "busy", false, err
	}
	if _, err = x.apply(settings, s == byTransaction, x.knowsOrOwn); err == nil {
		err = x.tellLease(settings, s)
	}
	if err == nil && granted && s == byTransaction {
		err = x.tellSince(s)
	}
	if err == nil {
		err = x.setMark()
	}
	return outcome, seated, err
}

// The first integers of the locks by which a session tells its lease, and since when it leads.
const (
	leaseClass       = 318473925
	leaseClassInside = 1530767677
	sinceClass       = 521961639
	priorityClass    = 1901988892
)

func (id lockID) tells() bool {
	class := id.key >> 32
	return id.objsubid == 2 && (class == leaseClass || class == leaseClassInside || class == sinceClass || class == priorityClass)
}

// tellsOfSession reports whether the lock tells the lease of a session outside a transaction.
func (id lockID) tellsOfSession() bool { return id.objsubid == 2 && id.key>>32 == leaseClass }

func (x *execution) tellLease(settings string, s scope) error {
	class := int64(leaseClass)
	if s == byTransaction {
		class = leaseClassInside
	}
	all, err := decode[[]setting](settings)
	for _, one := range all {
		if one.Name != "idle_session_timeout" {
			continue
		}
		millis, bad := strconv.ParseInt(one.Value, 10, 32)
		if bad != nil {
			return newError("22P02", "invalid input syntax for type integer: %q", one.Value)
		}
		_, err = x.server.locks.try(x.backend, twoIntegers(class, millis), shared, s)
	}
	return err
}

func (x *execution) tellSince(s scope) error {
	_, err := x.server.locks.try(x.backend, twoIntegers(sinceClass, time.Now().Unix()), shared, s)
	return err
}

// told is what a backend's locks tell: its lease, since when it leads, whether inside a
// transaction, and its priority.
func (s *Server) told(b *backend) []any {
	var lease, since int64
	inside, priority := false, int64(0)
	for _, id := range s.locks.of(b) {
		switch low := int64(uint32(id.key)); {
		case !id.tells():
		case id.key>>32 == sinceClass:
			since = low
		case id.key>>32 == priorityClass:
			priority = int64(int32(low))
		default:
			lease, inside = low, id.key>>32 == leaseClassInside
		}
	}
	return []any{lease, since * 1_000_000, inside, priority}
}

// overdue is how long ago a backend's lease ran out; 0 if it has not, or there is none.
func (s *Server) overdue(b *backend) time.Duration {
	lease, _ := s.told(b)[0].(int64)
	if lease == 0 || b.asked.IsZero() {
		return 0
	}
	return max(0, time.Since(b.asked)-time.Duration(lease)*time.Millisecond)
}

// sit tries the two seats of an election.
func (x *execution) sit(high, low int64, s scope) (seated bool, err error) {
	for _, seat := range []int64{low, low ^ 1} {
		if seated, err = x.server.locks.try(x.backend, twoIntegers(high, seat), exclusive, s); seated || err != nil {
			break
		}
	}
	return seated, err
}

func tryInTransaction(x *execution, _ *message) (Answer, error) {
	if !x.isMarked() {
		return Answer{}, nil
	}
	text, _ := x.settings.get("pgelector.key")
	key, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Answer{}, newError("22P02", "invalid input syntax for type bigint: %q", text)
	}
	granted, err := x.server.locks.try(x.backend, bigint(key), exclusive, byTransaction)
	if granted {
		return Answer{Affected: 2}, x.tellSince(byTransaction)
	}
	return Answer{Affected: 1}, err
}

func tryAsDeputy(x *execution, m *message) (Answer, error) {
	granted, err := x.server.locks.try(x.backend, bigint(m.integer(0)), exclusive, bySession)
	return one(granted, int64(x.pid)), err
}

func unlock(x *execution, m *message) (Answer, error) {
	return one(x.server.locks.unlock(x.backend, bigint(m.integer(0)), exclusive)), nil
}

func holdsLock(x *execution, m *message) (Answer, error) {
	h := x.server.holder(bigint(m.integer(1)))
	held := h != nil && int64(h.pid) == m.integer(0)
	return one(held, int64(x.pid)), nil
}

func tryPair(x *execution, m *message) (Answer, error) {
	granted, err := x.server.locks.try(x.backend, twoIntegers(m.integer(1), m.integer(2)), exclusive, m.scopeOf(0))
	return one(granted), err
}

func tellPriority(x *execution, m *message) (Answer, error) {
	told, err := x.server.locks.try(x.backend, twoIntegers(priorityClass, m.integer(1)), shared, m.scopeOf(0))
	return one(told), err
}

func pairIsFree(x *execution, m *message) (Answer, error) {
	free, err := x.server.locks.try(x.backend, twoIntegers(m.integer(0), m.integer(1)), shared, byTransaction)
	return one(free, int64(x.pid)), err
}

func takenLocks(x *execution, m *message) (a Answer, err error) {
	keys, err := m.integers(0)
	for _, key := range keys {
		free, err := x.server.locks.try(x.backend, bigint(key), shared, bySession)
		if err != nil {
			return Answer{}, err
		}
		if free {
			x.server.locks.unlock(x.backend, bigint(key), shared)
		} else {
			a.Rows = append(a.Rows, []any{key})
		}
	}
	return a, err
}

// trialLock's arguments are whether to take the lock for the transaction, the key's halves, and the key.
func trialLock(x *execution, m *message) (Answer, error) {
	id := twoIntegers(m.integer(1), m.integer(2))
	granted, err := x.server.locks.try(x.backend, id, exclusive, m.scopeOf(0))
	shown := granted && x.server.holder(pair(m.integer(3))) == x.backend
	if !m.bool(0) {
		shown = x.server.locks.unlock(x.backend, id, exclusive) && shown
	}
	return one(shown), err
}

func heldLocks(x *execution, m *message) (a Answer, err error) {
	for _, row := range x.server.lockRows() {
		if row.Granted && !row.Guard && !row.Shared && int64(row.PID) == m.integer(0) {
			a.Rows = append(a.Rows, []any{row.Key})
		}
	}
	return a, nil
}

// validateLocks takes no time: a Server has no processor that others use.
func validateLocks(x *execution, m *message) (Answer, error) {
	a, err := heldLocks(x, m)
	for i := range a.Rows {
		a.Rows[i] = append(a.Rows[i], int64(0))
	}
	return a, err
}

// confirm checks the lock, passes the barrier and makes the token, in this order.
func confirm(x *execution, m *message) (Answer, error) {
	holder := x.server.holder(bigint(m.integer(3)))
	held, name := holder != nil && int64(holder.pid) == m.integer(2), ""
	if held {
		name = holder.nameOfTransaction()
		held = holder == x.backend || !slices.ContainsFunc(x.server.locks.of(holder), lockID.tellsOfSession)
	}
	if in := x.isMarked() && m.integer(2) == int64(x.pid); in || !held {
		return one(false, int64(x.pid), int64(0), x.server.epoch, in, name), nil
	}
	if err := x.acquire(twoIntegers(m.integer(0), m.integer(1)), exclusive, byTransaction); err != nil {
		return Answer{}, err
	}
	if m.integer(2) == int64(x.pid) {
		if err := x.tellSince(bySession); err != nil {
			return Answer{}, err
		}
	}
	token, err := x.token()
	return one(true, int64(x.pid), token, x.server.epoch, false, name), err
}

func (x *execution) token() (int64, error) {
	if x.server.recovery {
		return 0, newError(internalError, "cannot make new WAL entries during recovery")
	}
	return x.server.timeline<<48 | x.xid(), nil
}

func tokenEpoch(x *execution, _ *message) (Answer, error) { return one(x.server.epoch), nil }

func tokens(x *execution, m *message) (a Answer, err error) {
	guards, err := decode[[]struct{ Key, High, Low int64 }](m.text(0))
	if err != nil {
		return a, err
	}
	token, err := x.token()
	if err != nil {
		return a, err
	}
	for _, g := range guards {
		passed, err := x.server.locks.try(x.backend, twoIntegers(g.High, g.Low), exclusive, byTransaction)
		if err != nil {
			return Answer{}, err
		}
		a.Rows = append(a.Rows, []any{g.Key, passed, token, x.server.epoch, int64(x.pid)})
	}
	return a, nil
}

func enterTerm(x *execution, m *message) (Answer, error) {
	if x.tx.xid != 0 || x.tx.fenced {
		return one("open", ""), nil
	}
	if err := x.bound(m.text(0)); err != nil {
		return Answer{}, err
	}
	passed, err := x.server.locks.try(x.backend, twoIntegers(m.integer(1), m.integer(2)), shared, byTransaction)
	if err != nil {
		return Answer{}, err
	}
	holder := x.server.holder(bigint(m.integer(4)))
	switch {
	case !passed:
		return one("superseded", ""), nil
	case holder == nil || int64(holder.pid) != m.integer(3),
		m.text(5) == "" && x.server.holder(pair(m.integer(6))) != holder,
		m.text(5) != "" && holder.nameOfTransaction() != m.text(5):
		return one("ended", ""), nil
	}
	x.tx.fenced = true
	return one("entered", x.server.fencedName(x.tx)), nil
}

// rememberedCommits are as many as anybody asks for: those of the moment.
const rememberedCommits = 100

// fencedName names a transaction by a number that no other has, and the start of its server.
func (s *Server) fencedName(t *transaction) string { return fmt.Sprint(t.stamp, " ", s.start()) }

func fencedTransaction(x *execution, _ *message) (Answer, error) {
	return one(x.server.fencedName(x.tx)), nil
}

func fencedOutcome(x *execution, m *message) (Answer, error) {
	name := m.text(0)
	_, started, _ := strings.Cut(name, " ")
	if started != x.server.start() {
		return one(""), nil
	}
	for _, b := range x.server.backends {
		if b.tx != nil && b.tx.fenced && x.server.fencedName(b.tx) == name && (!b.tx.failed || len(b.tx.savepoints) > 0) {
			return one("in progress"), nil
		}
	}
	if slices.Contains(x.server.committed, name) {
		return one("committed"), nil
	}
	return one("aborted"), nil
}

// bound sets timeouts that are off or longer than the given ones.
func (x *execution) bound(text string) error {
	_, err := x.apply(text, true, func(one setting) bool {
		limit, err := parseTime(one.Value)
		now := x.settings.time(one.Name)
		return x.knows(one) && (err != nil || now <= 0 || now > limit)
	})
	return err
}

func endOverdue(x *execution, m *message) (a Answer, err error) {
	l := x.server.locks.locks[lockID{objsubid: 2, key: m.integer(0)}]
	if l == nil {
		return a, nil
	}
	lease := time.Duration(m.integer(1)) * time.Millisecond
	for _, h := range append([]*holder{}, l.holders...) {
		if h.holds(shared) && h.b.tx != nil && time.Since(h.b.tx.began) > lease {
			x.server.end(h.b, newError(adminShutdown, "terminating connection due to administrator command"))
			a.Rows = append(a.Rows, []any{int64(h.b.pid), true, ""})
		}
	}
	return a, nil
}

func evictHolder(x *execution, m *message) (a Answer, err error) {
	seat := m.integer(2)
	for _, id := range []lockID{bigint(m.integer(1)), pair(seat), pair(seat ^ 1)} {
		if h := x.server.holder(id); h != nil && int64(h.pid) == m.integer(0) {
			x.server.end(h, newError(adminShutdown, "terminating connection due to administrator command"))
			return one(true), nil
		}
	}
	return a, nil
}

// holder returns the backend that holds an exclusive lock, or nil.
func (s *Server) holder(id lockID) *backend {
	if l := s.locks.locks[id]; l != nil {
		for _, h := range l.holders {
			if h.holds(exclusive) {
				return h.b
			}
		}
	}
	return nil
}
