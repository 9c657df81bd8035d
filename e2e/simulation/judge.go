package simulation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pgelector/pgelector/electortest"
)

// A judge looks at every step of the server's, and of the leaders' work, whether
// what is promised holds.
type judge struct {
	plan  Plan
	start time.Time

	mu         sync.Mutex
	seats      []*seat
	violations []string
	lastLed    map[string]time.Time // by election
	tokens     map[string]int64     // the greatest, by election
	terms      int
	log        func(string, ...any) // nil unless the simulation is to be followed
}

// A standing is what the judge knows of a seat.
type standing struct {
	working int       // how many leads have not returned
	token   int64     // of the newest term
	still   bool      // the process is frozen
	dead    bool      // it was killed, or has left
	lost    time.Time // when the server ended the session, not for its silence; zero if it lives
	late    bool      // it was frozen when its work should have returned
	jumped  time.Time // when its clock was last set forward
}

// works reports whether the seat does what only one may do at a time.
func (s *standing) works() bool { return s.working > 0 && !s.late }

// relies reports whether the seat's lock must not be unlocked.
func (s *seat) relies() bool { return s.working > 0 && !s.dead && (s.minded() || !s.late) }

// violated notes a broken promise.
func (j *judge) violated(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.breach(format, args...)
}

func (j *judge) breach(format string, args ...any) {
	text := fmt.Sprintf("at %v: ", time.Since(j.start)) + fmt.Sprintf(format, args...)
	if len(j.violations) < 5 {
		j.violations = append(j.violations, text)
	}
	j.logf("VIOLATED %s", text)
}

func (j *judge) logf(format string, args ...any) {
	if j.log != nil {
		j.log("%12v  "+format, append([]any{time.Since(j.start)}, args...)...)
	}
}

func (j *judge) join(l *life) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seats = append(j.seats, l.seats...)
}

// mark changes what is known of all seats of a life, and looks.
func (j *judge) mark(l *life, what string, change func(*standing)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logf("%s %s", l.id, what)
	for _, s := range l.seats {
		change(&s.standing)
	}
	j.look()
}

// thaws is told that a frozen process goes on: at once it must know whether it
// leads. Work whose time to return has passed meanwhile is cut short.
func (j *judge) thaws(l *life) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logf("%s thaws", l.id)
	for _, s := range l.seats {
		s.still = false
		s.late = s.working > 0 && !s.IsLeader()
	}
	j.look()
}

// timeHasPassed is told that a process's clock was set forward. It takes that for
// time in which it did not run, and finds that out when it next wakes, for a heartbeat.
func (j *judge) timeHasPassed(l *life) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range l.seats {
		s.jumped = time.Now()
		s.late = s.working > 0
	}
}

// workBegins is told that work under a term begins.
func (j *judge) workBegins(s *seat, token int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logf("%s works for %s, token %d", s.id, s.Election(), token)
	if token != s.token {
		j.terms++
		if token <= j.tokens[s.Election()] && s.lost.IsZero() && !s.dead {
			j.breach("the token of %s for %s does not rise: %d after %d", s.id, s.Election(), token, j.tokens[s.Election()])
		}
		j.tokens[s.Election()] = max(token, j.tokens[s.Election()])
	}
	s.token = token
	s.working++
	s.late = s.late || !s.jumped.IsZero() && time.Since(s.jumped) <= j.plan.Heartbeat
	j.look()
}

// workEnds is told that it has returned.
func (j *judge) workEnds(s *seat) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logf("%s has returned from work for %s", s.id, s.Election())
	s.working--
	s.late = s.late && s.working > 0
	j.look()
}

// trace is told of each step of the server's.
func (j *judge) trace(e electortest.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.log != nil {
		j.logf("        server: %d %q %s %v %v %v", e.PID, e.Application, e.What, e.Args, e.Done, e.Err)
	}
	for _, s := range j.seats {
		if s.id != e.Application {
			continue
		}
		switch {
		case e.What == "ended" && slices.ContainsFunc(e.Held, func(l electortest.Lock) bool { return l.Key == s.Key() && !l.Guard }):
			j.freed(s, e.Err)
		case strings.HasPrefix(e.What, "Unlock") && !e.Done && slices.Contains(e.Args, any(s.Key())) && !slices.Contains(e.Args, any(false)) && s.relies(): // UnlockTo with release false only looks
			j.breach("%s unlocks %s while its work goes on", s.id, s.Election())
		case e.What == "Confirm" && !e.Done && e.Args[2] == s.Key(),
			e.What == "Tokens" && !e.Done && strings.Contains(e.Args[0].(string), fmt.Sprintf(`"key":%d,`, s.Key())):
			s.lost = time.Time{} // this is another session
		}
	}
	j.look()
}

// freed is told that a session has ended with the lock of an election.
func (j *judge) freed(s *seat, err error) {
	var state interface{ SQLState() string }
	silent := errors.As(err, &state) && state.SQLState() == "57P05"
	switch {
	case s.dead:
	case err != nil && !silent:
		s.lost = time.Now()
		s.late = s.still
	case s.still:
		s.late = true
	case s.IsLeader():
		j.breach("%s believes that it leads %s while its lock is given up (%v)", s.id, s.Election(), err)
	case s.works():
		j.breach("the work of %s for %s goes on while its lock is given up (%v)", s.id, s.Election(), err)
	}
}

// look compares all who believe that they lead, or work as if they did.
func (j *judge) look() {
	leaders := map[string]*seat{}
	for _, s := range j.seats {
		if s.dead || s.still {
			continue
		}
		leads := s.IsLeader()
		if leads {
			j.lastLed[s.Election()] = time.Now()
		}
		if !leads && !s.works() {
			continue
		}
		if !s.lost.IsZero() {
			if since := time.Since(s.lost); since > j.plan.Lease {
				j.breach("%s leads %s on, %v after the server has ended its session", s.id, s.Election(), since)
			}
			continue
		}
		if other := leaders[s.Election()]; other != nil {
			j.breach("%s and %s both lead %s", other.id, s.id, s.Election())
		}
		leaders[s.Election()] = s
	}
}

// note writes a line into the log.
func (j *judge) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logf(format, args...)
}
