package memory_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

var (
	always  = context.Background()
	errOops = errors.New("oops")
)

// The default timing of an elector.
const (
	lease     = 10 * time.Second
	validity  = 7 * time.Second
	heartbeat = 2 * time.Second
)

var scopes = map[string]elector.Option{"in a session": elector.WithScope(elector.SessionScope), "in a transaction": inside}

func passes(_ message, send func() error) error { return send() }

// A bench is a server in a bubble.
type bench struct {
	*testing.T
	*electortest.Server
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, Server: electortest.NewServer()}
		defer b.Close()
		test(b)
	})
}

// scene runs a subtest in a bubble.
func scene(t *testing.T, name string, test func(b *bench)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Helper()
		bubble(t, test)
	})
}

// A candidate runs in a process of its own.
type candidate struct {
	*elector.Elector
	process *electortest.Process
	pool    *sql.DB
	rec     *hookstest.Recorder
	stop    context.CancelFunc
	done    chan error
}

// candidate returns a candidate of the election "orders".
func (b *bench) candidate(id string, opts ...elector.Option) *candidate {
	b.Helper()
	process := b.NewProcess()
	return b.candidateOn(process, process.Open(), id, opts...)
}

// candidateOn is candidate with a pool of a process.
func (b *bench) candidateOn(process *electortest.Process, pool *sql.DB, id string, opts ...elector.Option) *candidate {
	b.Helper()
	s := &candidate{process: process, pool: pool, rec: hookstest.NewRecorder()}
	e, err := elector.New(s.pool, "orders", append([]elector.Option{elector.WithCandidateID(id), elector.WithHooks(s.rec)}, opts...)...)
	b.check(err)
	s.Elector = e
	b.Cleanup(func() {
		for _, violation := range s.rec.Violations() {
			b.Error(violation)
		}
		_ = s.pool.Close()
	})
	return s
}

// run starts Run of a new candidate, until the end of the test.
func (b *bench) run(id string, opts ...elector.Option) *candidate {
	b.Helper()
	return b.start(b.candidate(id, opts...))
}

// start starts Run until the end of the test.
func (b *bench) start(s *candidate) *candidate {
	b.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.done = stop, make(chan error, 1)
	go func() { s.done <- s.Run(ctx, nil) }()
	b.Cleanup(func() {
		s.process.Thaw()
		s.process.Mend()
		stop()
		<-s.done
	})
	return s
}

// runFor runs Run for so long.
func (b *bench) runFor(d time.Duration, s *candidate) {
	b.Helper()
	ctx, stop := context.WithTimeout(always, d)
	defer stop()
	b.wraps(s.Run(ctx, nil), context.DeadlineExceeded)
}

// leads waits until a candidate leads, and returns how long that took.
func (b *bench) leads(s *candidate) time.Duration {
	b.Helper()
	start := time.Now()
	for !s.IsLeader() {
		if time.Since(start) > time.Hour {
			b.Fatalf("%s does not lead", s.CandidateID())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// campaign returns a term of a candidate that must be elected.
func (b *bench) campaign(e *elector.Elector) *elector.Term {
	b.Helper()
	term, err := e.Campaign(always)
	b.check(err)
	return term
}

// ended fails the test unless the candidate's terms have ended for these reasons.
func (b *bench) ended(s *candidate, reasons ...hooks.Reason) {
	b.Helper()
	synctest.Wait()
	var got []hooks.Reason
	for _, d := range s.rec.Demoted() {
		got = append(got, d.Reason)
	}
	if !slices.Equal(got, reasons) {
		b.Errorf("demoted %q, want %q", got, reasons)
	}
}

// failed fails the test unless these operations were reported as failed.
func (b *bench) failed(s *candidate, ops ...hooks.Op) {
	b.Helper()
	synctest.Wait()
	var got []hooks.Op
	for _, f := range s.rec.Failures() {
		got = append(got, f.Op)
	}
	if !slices.Equal(got, ops) {
		b.Errorf("failures %q, want %q: %+v", got, ops, s.rec.Failures())
	}
}

// leftNothing fails the test if a lock is held, or a connection of the candidate's is in use.
func (b *bench) leftNothing(s *candidate) {
	b.Helper()
	if synctest.Wait(); len(b.Locks()) > 0 || s.pool.Stats().InUse > 0 {
		b.Errorf("left: %+v, and %d connections", b.Locks(), s.pool.Stats().InUse)
	}
}

// within fails the test if a time is not between two bounds.
func (b *bench) within(what string, least, got, most time.Duration) {
	b.Helper()
	if got < least || got > most {
		b.Errorf("%s: after %v, want %v to %v", what, got, least, most)
	}
}

// check ends the test if err is not nil.
func (b *bench) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// wraps fails the test unless err wraps all targets. Without targets, err must be nil.
func (b *bench) wraps(err error, targets ...error) {
	b.Helper()
	if len(targets) == 0 && err != nil {
		b.Errorf("got %v", err)
	}
	for _, target := range targets {
		if !errors.Is(err, target) {
			b.Errorf("got %v\nwant one that wraps %v", err, target)
		}
	}
}

// pid returns the process id of the leader's backend.
func (b *bench) pid(s *candidate) int32 {
	b.Helper()
	leader, err := s.Leader(context.Background())
	b.check(err)
	return leader.PID
}

func state(err error) string {
	var e *electortest.Error
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
