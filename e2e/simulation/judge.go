package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A judge checks after each step of the server, and when work begins or ends, whether the
// library keeps its promises.
type judge struct {
	plan  Plan
	start time.Time

	mu          sync.Mutex
	candidacies []*candidacy
	violations  []string
	lastLed     map[string]time.Time // by election
	tokens      map[string]int64     // the largest, by election
	terms       int
	works       int                  // that have begun
	overlapped  bool                 // two led after the death of a host, as is allowed
	log         func(string, ...any) // may be nil
}

// A state is what the judge knows of a candidacy.
type state struct {
	working int   // how many calls of lead have not returned
	token   int64 // of the newest term
	term    *elector.Term
	frozen  bool      // the process is frozen
	dead    bool      // the process was killed or has ended
	lost    time.Time // when the server ended the session, other than for its silence; zero if it lives
	died    time.Time // when the host of the session's server died, which nobody was told; zero if it lives
	late    bool      // the process was frozen when its work should have returned

	faults  int       // how many keep what the server says from the candidate
	cleared time.Time // when the last of them was over
}

// works reports whether the candidacy does what only one may do at a time.
func (s *state) works() bool { return s.working > 0 && !s.late }

// needsLock reports whether the lock must not be released.
func (c *candidacy) needsLock() bool {
	return c.working > 0 && !c.dead && (c.electorRunsWork() || !c.late)
}

// violated records a broken promise.
func (j *judge) violated(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.addViolation(format, args...)
}

func (j *judge) addViolation(format string, args ...any) {
	text := fmt.Sprintf("at %v: ", time.Since(j.start)) + fmt.Sprintf(format, args...)
	if len(j.violations) < 5 {
		j.violations = append(j.violations, text)
	}
	j.logf("VIOLATED %s", text)
}

// note writes a line to the log.
func (j *judge) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logf(format, args...)
}

func (j *judge) logf(format string, args ...any) {
	if j.log != nil {
		j.log("%12v  "+format, append([]any{time.Since(j.start)}, args...)...)
	}
}

func (j *judge) join(i *instance) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.candidacies = append(j.candidacies, i.candidacies...)
}

// others returns the ids of the other candidates of an election, dead or alive.
func (j *judge) others(c *candidacy) (ids []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, other := range j.candidacies {
		if other.id != c.id && other.Election() == c.Election() {
			ids = append(ids, other.id)
		}
	}
	return slices.Compact(ids)
}

// mark changes the state of all candidacies of an instance, and checks.
func (j *judge) mark(i *instance, what string, change func(*state)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logf("%s %s", i.id, what)
	for _, c := range i.candidacies {
		change(&c.state)
	}
	j.check()
}

// shield records that a fault keeps what the server says from an instance, or comes late with it.
// over is called when the fault is over, and what was on its way then has arrived after a while.
func (j *judge) shield(i *instance) (over func(while time.Duration)) {
	change := func(n int, at time.Time) {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, c := range i.candidacies {
			c.faults += n
			c.clearFrom(at)
		}
	}
	change(1, time.Time{})
	return func(while time.Duration) { change(-1, time.Now().Add(while)) }
}

func (s *state) clearFrom(at time.Time) {
	if at.After(s.cleared) {
		s.cleared = at
	}
}

// toldWithin returns how soon a candidate knows that the server has ended its session: it is told,
// or looks each 250 ms. A statement may be on its way.
func (c *candidacy) toldWithin() time.Duration {
	bound := 3*c.plan.Latency + time.Millisecond
	if c.Driver == electortest.PQ {
		bound += min(250*time.Millisecond, c.plan.Heartbeat)
	}
	return bound
}

// knowsLate reports whether the candidate should know that its session has ended.
func (c *candidacy) knowsLate() bool {
	since := c.lost
	if c.cleared.After(since) {
		since = c.cleared
	}
	return c.faults == 0 && time.Since(since) > c.toldWithin()
}

// thawed records that a process was thawed. It must know at once whether it leads. Work that
// should have returned meanwhile is marked late.
func (j *judge) thawed(i *instance) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logf("%s thaws", i.id)
	for _, c := range i.candidacies {
		c.frozen = false
		c.clearFrom(time.Now())
		c.late = c.working > 0 && !c.IsLeader()
	}
	j.check()
}

// workBegins records that the work of a term begins.
func (j *judge) workBegins(c *candidacy, term *elector.Term) {
	token := term.Token()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logf("%s works for %s, token %d", c.id, c.Election(), token)
	if token != c.token {
		j.terms++
		if token <= j.tokens[c.Election()] && c.lost.IsZero() && c.died.IsZero() && !c.dead {
			j.addViolation("the token of %s for %s does not rise: %d after %d", c.id, c.Election(), token, j.tokens[c.Election()])
		}
		j.tokens[c.Election()] = max(token, j.tokens[c.Election()])
	}
	c.token, c.term = token, term
	c.working++
	j.works++
	j.check()
}

// workEnds records that the work of a term has returned.
func (j *judge) workEnds(c *candidacy) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logf("%s has returned from work for %s", c.id, c.Election())
	c.working--
	c.late = c.late && c.working > 0
	j.check()
}

// trace receives each step of the server.
func (j *judge) trace(e electortest.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.log != nil {
		j.logf("        server: %d %q %s %v %v %v", e.PID, e.Application, e.What, e.Args, e.Done, e.Err)
	}
	for _, c := range j.candidacies {
		if c.id != e.Application {
			continue
		}
		switch {
		case e.What == "ended" && slices.ContainsFunc(e.Held, func(l electortest.Lock) bool { return l.Key == c.Key() && !l.Guard }):
			j.sessionEnded(c, e.Err)
		case strings.HasPrefix(e.What, "Unlock") && !e.Done && slices.Contains(e.Args, any(c.Key())) && !slices.Contains(e.Args, any(false)) && c.needsLock(): // UnlockTo with release false releases nothing
			j.addViolation("%s releases the lock of %s before its work has returned", c.id, c.Election())
		case e.What == "Confirm" && !e.Done && e.Args[3] == c.Key(),
			e.What == "Tokens" && !e.Done && strings.Contains(e.Args[0].(string), fmt.Sprintf(`"key":%d,`, c.Key())):
			c.lost, c.died = time.Time{}, time.Time{} // this is another session
		}
	}
	j.check()
}

// sessionEnded records that the server ended a session that held an election's lock.
func (j *judge) sessionEnded(c *candidacy, err error) {
	var sqlErr interface{ SQLState() string }
	silent := errors.As(err, &sqlErr) && sqlErr.SQLState() == "57P05"
	switch {
	case c.dead:
	case errors.Is(err, electortest.ErrHostDied):
		c.died = time.Now()
	case err != nil && !silent:
		c.lost = time.Now()
		c.late = c.frozen
	case c.frozen:
		c.late = true
	case c.IsLeader():
		j.addViolation("%s believes that it leads %s while its lock is released (%v)", c.id, c.Election(), err)
	case c.works():
		j.addViolation("the work of %s for %s goes on while its lock is released (%v)", c.id, c.Election(), err)
	}
}

// check compares all candidacies that believe that they lead, or work.
func (j *judge) check() {
	leaders := map[string]*candidacy{}
	for _, c := range j.candidacies {
		if c.dead || c.frozen {
			continue
		}
		leads := c.IsLeader()
		if leads {
			j.lastLed[c.Election()] = time.Now()
		}
		if !leads && !c.works() {
			continue
		}
		if !c.lost.IsZero() {
			if since := time.Since(c.lost); since > j.plan.Lease || leads && c.knowsLate() {
				j.addViolation("%s still leads %s, %v after the server ended its session", c.id, c.Election(), since)
			}
			continue
		}
		if !c.died.IsZero() && time.Since(c.died) > c.plan.Lease*9/10 { // its validity and its drain
			j.addViolation("%s still leads %s, %v after the host of its server died", c.id, c.Election(), time.Since(c.died))
			continue
		}
		if other := leaders[c.Election()]; other != nil {
			if j.mayOverlap(c, other) {
				j.overlapped = true
			} else {
				j.addViolation("%s and %s both lead %s", other.id, c.id, c.Election())
			}
		}
		leaders[c.Election()] = c
	}
}

// mayOverlap reports whether the host of the server of one of two leaders has died, and no option has
// the other wait.
func (j *judge) mayOverlap(a, b *candidacy) bool {
	return !(a.died.IsZero() && b.died.IsZero()) && !j.plan.LockDelay && !j.plan.Synchronous
}

// A store is the database's table of registers, one for each election. A leader reads its
// register once in a term and then overwrites the value that it remembers. If another candidate
// writes in between, that write is lost: Term.InTx promises that this does not happen.
type store struct {
	judge *judge
	mu    sync.Mutex
	value map[string]int64
	token map[string]int64 // of the last write
}

// clone returns a copy, for a standby.
func (s *store) clone() *store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &store{judge: s.judge, value: maps.Clone(s.value), token: maps.Clone(s.token)}
}

const (
	readRegister  = "SELECT value FROM register WHERE election = $1"
	writeRegister = "UPDATE register SET value = $2 WHERE election = $1 AND $3 AND $4"
)

// handle executes the statements of a writer.
func (s *store) handle(st electortest.Statement) (electortest.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	election := st.Args[0].(string)
	if st.SQL == readRegister {
		return electortest.Answer{Rows: [][]any{{s.value[election]}}}, nil
	}
	value, remembered, token := st.Args[1].(int64), st.Args[2].(int64), st.Args[3].(int64)
	st.OnCommit(func() { s.commit(election, value, remembered, token) })
	return electortest.Answer{Affected: 1}, nil
}

func (s *store) commit(election string, value, remembered, token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.value[election] != remembered {
		s.judge.violated("term %d overwrote %s, where it remembers %d; the lost write was %d, of term %d", token, election, remembered, s.value[election], s.token[election])
	}
	if token < s.token[election] {
		s.judge.violated("term %d wrote to %s after term %d", token, election, s.token[election])
	}
	s.value[election], s.token[election] = value, token
}

// A writer writes in one term.
type writer struct {
	*candidacy
	term       *elector.Term
	hasRead    bool
	remembered int64
}

// write writes once, and reports whether the writer may go on.
func (w *writer) write(ctx context.Context) bool {
	var next int64
	err := w.term.InTx(ctx, w.pool, nil, func(tx *sql.Tx) error {
		if !w.hasRead {
			if err := tx.QueryRowContext(ctx, readRegister, w.Election()).Scan(&w.remembered); err != nil {
				return err
			}
		}
		next = int64(w.draw(1, 1<<62))
		sleep(ctx, w.draw(0, w.draw(0, 4*w.plan.Heartbeat)))
		w.waitWhileFrozen()
		_, err := tx.ExecContext(ctx, writeRegister, w.Election(), next, w.remembered, w.term.Token())
		return err
	})
	switch {
	case err == nil:
		w.hasRead, w.remembered = true, next
		return true
	case errors.Is(err, elector.ErrOutcomeUnknown):
		return false
	}
	return errors.Is(err, elector.ErrRolledBack) && !errors.Is(err, elector.ErrNotLeader) && ctx.Err() == nil
}
