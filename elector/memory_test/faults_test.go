package memory_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A fault is what becomes of a message. over is closed when the faults are over.
type fault struct {
	name  string
	hangs bool
	meets func(m message, send func() error, over <-chan struct{}) error
}

func refuses(err error) func(message, func() error, <-chan struct{}) error {
	return func(message, func() error, <-chan struct{}) error { return err }
}

// answersWith has the message sent, and its answer lost.
func answersWith(err error) func(message, func() error, <-chan struct{}) error {
	return func(_ message, send func() error, _ <-chan struct{}) error {
		_ = send()
		return err
	}
}

var faults = []fault{
	{"fails", false, refuses(errOops)},
	{"fails late", false, answersWith(errOops)},
	{"57P01", false, refuses(serverError("57P01", "terminating connection due to administrator command"))},
	{"53200", false, refuses(serverError("53200", "out of shared memory"))},
	{"57014", false, refuses(serverError("57014", "canceling statement due to user request"))},
	{"25P02", false, refuses(serverError("25P02", "current transaction is aborted"))},
	{"26000", false, refuses(serverError("26000", "prepared statement does not exist"))},
	{"42704", false, refuses(serverError("42704", "unrecognized configuration parameter"))},
	{"bad connection", false, refuses(driver.ErrBadConn)},
	{"bad connection late", false, answersWith(driver.ErrBadConn)},
	{"hangs", true, func(m message, _ func() error, over <-chan struct{}) error {
		select {
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		case <-over:
			return driver.ErrBadConn
		}
	}},
	{"hangs beyond", true, func(m message, send func() error, over <-chan struct{}) error {
		if m.inTx { // database/sql would wait on a mutex, where no time passes in a bubble
			return errOops
		}
		<-over
		return driver.ErrBadConn
	}},
}

// A part of a play is what the candidate with the faults does.
type part struct {
	leads     bool // first
	transfers bool // the other one names it as its successor, instead of being killed
	shared    bool
	opts      []elector.Option
}

var parts = map[string]part{
	"leads":                   {leads: true, opts: []elector.Option{scopes["in a session"]}},
	"leads inside":            {leads: true, opts: []elector.Option{inside}},
	"leads, shared":           {leads: true, shared: true},
	"tries":                   {opts: []elector.Option{scopes["in a session"], elector.WithTakeover(elector.Deputy)}},
	"tries inside":            {opts: []elector.Option{inside, elector.WithTakeover(elector.Deputy)}},
	"waits":                   {opts: []elector.Option{scopes["in a session"], elector.WithTakeover(elector.Wait)}},
	"waits inside":            {opts: []elector.Option{inside, elector.WithTakeover(elector.Wait)}},
	"polls":                   {opts: []elector.Option{scopes["in a session"], elector.WithTakeover(elector.Poll)}},
	"polls inside":            {opts: []elector.Option{inside, elector.WithTakeover(elector.Poll)}},
	"polls, shared":           {shared: true},
	"succeeds":                {transfers: true, opts: []elector.Option{scopes["in a session"], elector.WithTakeover(elector.Poll)}},
	"succeeds inside":         {transfers: true, opts: []elector.Option{inside, elector.WithTakeover(elector.Poll)}},
	"succeeds, shared":        {transfers: true, shared: true},
	"succeeds as the deputy":  {transfers: true, opts: []elector.Option{scopes["in a session"], elector.WithTakeover(elector.Deputy)}},
	"succeeds as it waits in": {transfers: true, opts: []elector.Option{inside, elector.WithTakeover(elector.Wait)}},
}

// A trouble is one fault of all messages of one name, while it lasts.
type trouble struct {
	statement string
	fault     fault
	lasts     atomic.Bool
	over      chan struct{}

	mu   sync.Mutex
	seen map[string]bool
}

func (f *trouble) wire(m message, send func() error) error {
	f.mu.Lock()
	f.seen[m.name] = true
	f.mu.Unlock()
	if f.lasts.Load() && m.name == f.statement {
		return f.fault.meets(m, send, f.over)
	}
	return send()
}

// play has one candidate, with the trouble, play its part beside another one.
func (b *bench) play(p part, f *trouble) (two *candidate) {
	f.over, f.seen = make(chan struct{}), map[string]bool{}
	lasts := 2 * heartbeat
	if f.fault.hangs {
		lasts = lease
	}
	other := []elector.Option{elector.WithBackoff(time.Second, 5*time.Second)}
	opts := slices.Concat(p.opts, other)
	if len(p.opts) > 0 {
		other = append(other, p.opts[0])
	}
	if p.shared {
		two = b.wired(f.wire, "spare", elector.WithBackoff(time.Second, 5*time.Second))
		s, err := elector.NewSession(two.pool, elector.WithCandidateID("two"))
		b.check(err)
		defer func() { b.wraps(s.Close(always)) }()
		two.Elector, err = s.Elector("orders", elector.WithBackoff(time.Second, 5*time.Second), elector.WithHooks(two.rec))
		b.check(err)
	} else {
		two = b.wired(f.wire, "two", opts...)
	}
	one := b.candidate("one", other...)
	first, second := one, two
	if p.leads {
		first, second = two, one
	}
	b.leads(b.start(first))
	b.start(second)
	time.Sleep(retry + heartbeat/2)
	var killed atomic.Bool
	ends := make(chan struct{})
	defer close(ends)
	go func() {
		for {
			select {
			case <-ends:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if !killed.Load() && one.IsLeader() && two.IsLeader() {
				b.Error("two lead")
				return
			}
		}
	}()
	f.lasts.Store(f.statement != "")
	time.Sleep(lasts / 2)
	ctx, stop := context.WithTimeout(always, lease)
	switch term, _ := first.Term(); {
	case p.leads && term != nil:
		go func() {
			_ = term.Verify(ctx)
			_ = term.Resign(ctx)
		}()
	case p.transfers && term != nil:
		go func() { _ = term.TransferTo(ctx, "two") }()
	case !p.leads:
		killed.Store(true)
		one.process.Kill()
	}
	time.Sleep(lasts / 2)
	f.lasts.Store(false)
	close(f.over)
	began := time.Now()
	for !one.IsLeader() && !two.IsLeader() && time.Since(began) < time.Hour {
		time.Sleep(20 * time.Millisecond)
	}
	b.within("somebody leads", 0, time.Since(began), 10*time.Second)
	time.Sleep(lease)
	stop()
	for _, s := range []*candidate{one, two} {
		select {
		case err := <-s.done:
			b.Errorf("%s ended: %v", s.CandidateID(), err)
			s.done <- err
			continue
		default:
		}
		s.stop()
		began := time.Now()
		err := <-s.done
		s.done <- err
		b.within("it ends", 0, time.Since(began), 4*time.Second)
		b.wraps(err, context.Canceled)
	}
	if p.shared {
		b.wraps(two.Close(always))
	}
	return two
}

func (b *bench) plays(p part, f *trouble) {
	two := b.play(p, f)
	time.Sleep(3 * time.Second)
	b.leftNothing(two)
}

// Cells that have failed once.
var failedOnce = map[string]bool{
	"waits inside: RepeatableRead 26000":     true, // the call was repeated, and began another transaction beside the first
	"polls inside: BEGIN hangs beyond":       true, // the second connection was kept
	"succeeds, shared: DescribeServer 26000": true, // the source of its own had not passed a check, and refused the server
	"waits inside: Holder fails":             true, // a grant without the second connection crashed the process
}

// Whatever becomes of the messages of one name, for a while, to a candidate in any part: nobody panics, no two lead, somebody leads
// soon afterwards, no campaign is over, and nothing is left. Each run tries a few of some 3,300 cells, and all with ALL_FAULTS=1.
func TestNoFaultOfAStatementLeavesAnythingBehind(t *testing.T) {
	all, n := os.Getenv("ALL_FAULTS") != "", rand.IntN(few)
	for name, p := range parts {
		t.Run(name, func(t *testing.T) {
			found := &trouble{}
			bubble(t, func(b *bench) { b.plays(p, found) })
			for _, statement := range slices.Sorted(maps.Keys(found.seen)) {
				for _, f := range faults {
					cell := fmt.Sprint(statement, " ", f.name)
					if n++; !all && n%few != 0 && !failedOnce[name+": "+cell] || f.hangs && (statement == "COMMIT" || statement == "ROLLBACK") {
						continue
					}
					scene(t, cell, func(b *bench) { b.plays(p, &trouble{statement: statement, fault: f}) })
				}
			}
		})
	}
}

const few = 50 // one of so many cells
