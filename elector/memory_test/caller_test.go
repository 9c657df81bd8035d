package memory_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/shard"
)

// calledKey is the key of the value that names the call that a context was given to.
type calledKey struct{}

// called calls do with a context that names the call, by a value and by a label of pprof.
func called(call string, do func(ctx context.Context)) {
	pprof.Do(context.WithValue(always, calledKey{}, call), pprof.Labels("call", call), do)
}

// callOf is the call that a context was given to; "" for none.
func callOf(ctx context.Context) string {
	call, _ := ctx.Value(calledKey{}).(string)
	return call
}

// A carriage is what a pool's statements carry.
type carriage struct {
	mu    sync.Mutex
	seen  map[string]map[string]bool // statements, by the call that they carry
	wrong map[string]bool            // labels that are not those of the statement's context
}

// watched is a pool of the process, and what its statements carry.
func (b *bench) watched(p *electortest.Process) (*sql.DB, *carriage) {
	c := &carriage{seen: map[string]map[string]bool{}, wrong: map[string]bool{}}
	inner := p.Open()
	pool := drivertest.Watched(inner, c.saw)
	b.Cleanup(func() { _, _ = pool.Close(), inner.Close() })
	return pool, c
}

func (c *carriage) saw(ctx context.Context, what string) {
	call, label, labels := callOf(ctx), "", drivertest.Labels()
	if call != "" {
		label = fmt.Sprintf("{%q:%q}", "call", call)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[call] == nil {
		c.seen[call] = map[string]bool{}
	}
	c.seen[call][what] = true
	if labels != label && what != "begin" { // which a session's transaction may be
		c.wrong[fmt.Sprintf("%s, which carries %q, has the labels %q", what, call, labels)] = true
	}
}

// by are the statements that carry the call.
func (c *carriage) by(call string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.seen[call]))
}

// check fails the test unless the call carries these statements, and if there are none, none at all.
func (c *carriage) check(b *bench, call string, want ...string) {
	b.Helper()
	synctest.Wait()
	got := c.by(call)
	for _, statement := range want {
		if !slices.Contains(got, statement) {
			b.Errorf("%s is not carried by %q: %q are", statement, call, got)
		}
	}
	if len(want) == 0 && len(got) > 0 {
		b.Errorf("%q carries %q", call, got)
	}
	for _, background := range []string{"query Ping", "query ValidateLocks", "query Notify"} {
		if call != "" && slices.Contains(got, background) {
			b.Errorf("%q carries %s, which nobody has called for", call, background)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for wrong := range c.wrong {
		b.Error(wrong)
	}
}

// What the library sends by itself, for as long as a campaign or a loop lasts, carries nothing of the call
// that began it.
func TestWhatTheLibrarySendsByItselfCarriesNothingOfItsCaller(t *testing.T) {
	poll, wait := elector.WithTakeover(elector.Poll), elector.WithTakeover(elector.Wait)
	validated := elector.WithValidateInterval(time.Second)
	long := func(ctx context.Context, do func(ctx context.Context)) {
		ctx, stop := context.WithTimeout(ctx, 5*lease)
		defer stop()
		do(ctx)
	}
	run := func(ctx context.Context, e *elector.Elector) { _ = e.Run(ctx, nil) }
	for name, c := range map[string]struct {
		do      func(ctx context.Context, e *elector.Elector)
		opts    []elector.Option
		follows bool
		sends   []string // among others
	}{
		"Run leads":                              {do: run, opts: []elector.Option{validated}, sends: []string{"query TryLock", "query Confirm", "query Ping", "query ValidateLocks", "query Unlock"}},
		"Run leads in a transaction":             {do: run, opts: []elector.Option{inside}, sends: []string{"begin", "query TryTransactionLock", "query Confirm"}},
		"Run leads with standbys":                {do: run, opts: []elector.Option{elector.WithSynchronousStandby(lease)}, sends: []string{"query CommitSynchronously"}},
		"Run is the deputy":                      {do: run, follows: true, sends: []string{"execute TryAsDeputy"}},
		"Run is the deputy in a transaction":     {do: run, opts: []elector.Option{inside}, follows: true, sends: []string{"query TryTransactionLock"}},
		"Run waits in the server":                {do: run, opts: []elector.Option{wait}, follows: true, sends: []string{"exec WaitLock"}},
		"Run polls":                              {do: run, opts: []elector.Option{poll}, follows: true, sends: []string{"query TryLock"}},
		"Run is unhealthy":                       {do: run, opts: []elector.Option{elector.WithHealth(unfit, elector.HealthPolicy{})}, follows: true, sends: []string{"query Holder"}},
		"Campaign waits":                         {do: func(ctx context.Context, e *elector.Elector) { _, _ = e.Campaign(ctx) }, follows: true, sends: []string{"query TryLock"}},
		"Start, and what it began, lead":         {do: func(ctx context.Context, e *elector.Elector) { _ = e.Start(ctx); <-e.Done() }, sends: []string{"query TryLock", "query Ping"}},
		"Observe":                                {do: observe, follows: true, sends: []string{"query Holder"}},
		"TryCampaign has a term, which goes on":  {do: tryAnd(func(*elector.Term) {}), sends: []string{"query Ping", "query Unlock"}},
		"the term of a TryCampaign is validated": {do: tryAnd(func(*elector.Term) {}), opts: []elector.Option{validated}, sends: []string{"query ValidateLocks"}},
	} {
		scene(t, name, func(b *bench) {
			b.SetSynchronousStandbys("standby", "standby")
			process := b.NewProcess()
			pool, carried := b.watched(process)
			one := b.candidateOn(process, pool, "one", c.opts...)
			if c.follows {
				b.leads(b.run("leader"))
			}
			called("Run", func(ctx context.Context) { long(ctx, func(ctx context.Context) { c.do(ctx, one.Elector) }) })
			if !strings.Contains(name, "TryCampaign") {
				carried.check(b, "Run")
			}
			carried.check(b, "", c.sends...) // else the row shows nothing
		})
	}
}

func unfit(context.Context) elector.HealthReport { return elector.HealthReport{Unhealthy: true} }

func observe(ctx context.Context, e *elector.Elector) {
	for range e.Observe(ctx) {
	}
}

// tryAnd makes an attempt that must succeed, and has the term go on until ctx ends.
func tryAnd(do func(*elector.Term)) func(ctx context.Context, e *elector.Elector) {
	return func(ctx context.Context, e *elector.Elector) {
		if term, elected, _ := e.TryCampaign(ctx); elected {
			do(term)
			<-ctx.Done()
			_ = term.Resign(always)
		}
	}
}

// What a call of the user's sends before it returns is part of that call.
func TestWhatACallSendsCarriesTheCall(t *testing.T) {
	term := func(call func(ctx context.Context, b *bench, term *elector.Term, pool *sql.DB)) func(ctx context.Context, b *bench, e *elector.Elector, pool *sql.DB) {
		return func(ctx context.Context, b *bench, e *elector.Elector, pool *sql.DB) {
			led := b.campaign(e)
			call(ctx, b, led, pool)
			_ = led.Resign(always)
		}
	}
	for name, c := range map[string]struct {
		call  func(ctx context.Context, b *bench, e *elector.Elector, pool *sql.DB)
		sends []string // among others
		most  []string // that may be sent; nil: any
	}{
		"TryCampaign": {call: func(ctx context.Context, b *bench, e *elector.Elector, _ *sql.DB) {
			term, _, err := e.TryCampaign(ctx)
			b.check(err)
			time.Sleep(lease)
			_ = term.Resign(always)
		}, sends: []string{"connect", "query DescribeServer", "query TryLock", "query Confirm"}},
		"TryRun": {call: func(ctx context.Context, b *bench, e *elector.Elector, _ *sql.DB) {
			_, err := e.TryRun(ctx, func(context.Context, *elector.Term) error { time.Sleep(2 * heartbeat); return nil })
			b.check(err)
		}, sends: []string{"connect", "query TryLock", "query Confirm"}},
		"Verify": {call: term(func(ctx context.Context, b *bench, term *elector.Term, _ *sql.DB) { b.check(term.Verify(ctx)) }),
			sends: []string{"query HoldsLock"}, most: []string{"query HoldsLock"}},
		"InTx": {call: term(func(ctx context.Context, b *bench, term *elector.Term, pool *sql.DB) {
			b.check(term.InTx(ctx, pool, nil, func(tx *sql.Tx) error { return nil }))
		}), sends: []string{"begin", "query EnterTerm"}},
		"Leader":     {call: func(ctx context.Context, _ *bench, e *elector.Elector, _ *sql.DB) { _, _ = e.Leader(ctx) }, sends: []string{"begin", "query Holder"}},
		"Candidates": {call: func(ctx context.Context, _ *bench, e *elector.Elector, _ *sql.DB) { _, _ = e.Candidates(ctx) }, sends: []string{"query Holder", "query Deputies"}},
		"TransferTo": {call: term(func(ctx context.Context, _ *bench, term *elector.Term, _ *sql.DB) { _ = term.TransferTo(ctx, "nobody") }),
			sends: []string{"query TryPair", "query UnlockTo"}},
		"RequestResign": {call: term(func(ctx context.Context, _ *bench, _ *elector.Term, pool *sql.DB) {
			_, _ = elector.RequestResign(ctx, pool, "orders")
		}),
			sends: []string{"begin", "query Holder", "query Ring"}},
		"RequestTransfer": {call: term(func(ctx context.Context, _ *bench, _ *elector.Term, pool *sql.DB) {
			_, _ = elector.RequestTransfer(ctx, pool, "orders", "nobody")
		}), sends: []string{"begin", "query Holder", "query Ring"}},
	} {
		scene(t, name, func(b *bench) {
			process := b.NewProcess()
			pool, carried := b.watched(process)
			one := b.candidateOn(process, pool, "one")
			called(name, func(ctx context.Context) {
				ctx, stop := context.WithTimeout(ctx, lease/2)
				defer stop()
				c.call(ctx, b, one.Elector, pool)
			})
			carried.check(b, name, c.sends...)
			for _, statement := range carried.by(name) {
				if c.most != nil && !slices.Contains(c.most, statement) {
					b.Errorf("%s carries %s", name, statement)
				}
			}
		})
	}
}

// A shared session, and a member of a group, ask for many elections at once: nobody's call is theirs.
func TestWhatASharedSessionSendsCarriesNothing(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, b *bench, pool *sql.DB){
		"a shared session": func(ctx context.Context, b *bench, pool *sql.DB) {
			shared, err := elector.NewSession(pool)
			b.check(err)
			e, err := shared.Elector("orders")
			b.check(err)
			_, err = e.TryRun(ctx, nil)
			b.wraps(err, context.DeadlineExceeded)
			b.check(shared.Close(always))
		},
		"a member": func(ctx context.Context, b *bench, pool *sql.DB) {
			shards, err := shard.NewSet("a", "b")
			b.check(err)
			err = shard.Run(ctx, pool, "group", shards, func(ctx context.Context, _ string, _ *elector.Term) error {
				if call := callOf(ctx); call != "Run" {
					b.Errorf("the work carries %q", call)
				}
				<-ctx.Done()
				return nil
			})
			b.wraps(err, context.DeadlineExceeded)
		},
	} {
		scene(t, name, func(b *bench) {
			pool, carried := b.watched(b.NewProcess())
			called("Run", func(ctx context.Context) {
				ctx, stop := context.WithTimeout(ctx, 3*lease)
				defer stop()
				do(ctx, b, pool)
			})
			carried.check(b, "Run")
			carried.check(b, "", "query TryLocks", "query Ping")
		})
	}
}

// The work is its caller's: lead, and the hooks. Checks of its health are not: they go on for ever.
func TestWhatTheUserDoesInATermCarriesTheCall(t *testing.T) {
	bubble(t, func(b *bench) {
		var mu sync.Mutex // a hook of the queue may run while lead does
		got := map[string]string{}
		saw := func(what string, ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			got[what] = callOf(ctx) + " " + drivertest.Labels()
		}
		var checked atomic.Pointer[string]
		process := b.NewProcess()
		pool := process.Open()
		one := b.candidateOn(process, pool, "one",
			elector.WithHealth(func(ctx context.Context) elector.HealthReport {
				carries := callOf(ctx) + " " + drivertest.Labels()
				checked.Store(&carries)
				return elector.HealthReport{Score: 1}
			}, elector.HealthPolicy{}),
			elector.WithHooks(hooks.Funcs{
				Campaign:  func(ctx context.Context, _ hooks.Campaign) { saw("OnCampaign", ctx) },
				Elected:   func(ctx context.Context, _ hooks.Elected) { saw("OnElected", ctx) },
				Heartbeat: func(ctx context.Context, _ hooks.Heartbeat) { saw("OnHeartbeat", ctx) },
				Demoted:   func(ctx context.Context, _ hooks.Demoted) { saw("OnDemoted", ctx) },
			}))
		labelled := ""
		called("Run", func(ctx context.Context) {
			b.check(one.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
				time.Sleep(lease)
				saw("lead", ctx)
				for record := range strings.SplitSeq(drivertest.Goroutines(), "\n\n") {
					if drivertest.LabelsIn(record) != "" && !strings.Contains(record, "TestWhatTheUserDoesInATermCarriesTheCall") {
						labelled += record + "\n"
					}
				}
				return nil
			}))
		})
		for what, want := range map[string]string{"lead": `Run {"call":"Run"}`, "OnElected": `Run {"call":"Run"}`,
			"OnCampaign": "Run ", "OnHeartbeat": "Run ", "OnDemoted": "Run "} {
			if got[what] != want {
				b.Errorf("%s carries %q, want %q", what, got[what], want)
			}
		}
		if carries := checked.Load(); carries == nil || *carries != " " {
			b.Errorf("the check of its health carries %q", *carries)
		}
		if labelled != "" {
			b.Errorf("goroutines with the caller's labels:\n%s", labelled)
		}
	})
}
