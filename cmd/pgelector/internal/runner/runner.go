//go:build unix

// Package runner implements "pgelector run": it runs a command while package elector leads
// an election, with package supervise.
//
// # States
//
//	campaigning ── elected ──▶ leading: the command runs ── it ended ──▶ hold, resign ── --once ──▶ its exit status
//	     ▲                              │                                     │
//	     │                              │ the term was lost                   ▼
//	     │                              ▼                               restart delay
//	     │                     TERM, grace, KILL ── --once ──▶ exit 75        │
//	     └──────────────────────────────┴─────────────────────────────────────┘
//
// While a command runs, signals are forwarded to it, and the term goes on until the command
// ends. Otherwise signals end this program.
//
// The lock is released only after lead returns, and lead returns only when no process of
// the command is left.
package runner

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/supervise"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	hcloghooks "github.com/pgelector/pgelector/hooks/hclog"
	"github.com/pgelector/pgelector/roster"
)

// runner is one "pgelector run".
type runner struct {
	Config
	elector *elector.Elector
	reaper  *supervise.Reaper
	served  *endpoints

	// The context of the current elector.Run.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	child    *supervise.Child // while one runs
	led      bool             // a command was started
	leaving  os.Signal        // the signal that ends this program, if any
	answered bool             // the server answered an attempt
	lastErr  error            // of the last attempt
	finished bool             // the outcome is known
	outcome  error            // nil or an error with an exit code
	lasted   time.Duration    // duration of the last run of the command
}

// Run runs the command under leadership, or leads without one. Its error has an exit code.
func Run(c Config) error {
	if c.Group != "" {
		return runShards(c)
	}
	signals := supervise.Catch() // before anything begins that must be ended well
	pool, err := c.Target.Open(connect.Election)
	if err != nil {
		return exit.Classify(err)
	}
	defer closePool(pool)
	r := &runner{}
	c.reaper = func() *supervise.Reaper { return r.reaper }
	r.Config = c
	if r.served, err = newEndpoints(pool); err != nil {
		return err
	}
	shown := []hooks.Hook{r.served.hook(), r.logged(hcloghooks.New(c.Log))}
	var published *roster.Roster
	if c.Roster != "" {
		if published, err = r.openRoster(pool); err != nil {
			return err
		}
		defer closeRoster(published)
		shown = append(shown, published)
	}
	r.elector, err = elector.New(pool, c.Election, append(c.options(), elector.WithHooks(r.hook(), r.reports(shown...)))...)
	if err != nil {
		return exit.Classify(exit.ByFlags(err, c.notes))
	}
	if err := r.served.monitor.Add(r.elector); err != nil {
		return err
	}
	if published != nil {
		if err := published.Add(r.elector); err != nil {
			return err
		}
	}
	if r.reaper, err = supervise.NewReaper(); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	r.renew()
	go r.dispatch(signals)
	stop, err := r.serveHTTP()
	if err != nil {
		return err
	}
	defer stop()
	if !c.hasCommand() {
		return r.once(leadAlone)
	}
	return r.loop()
}

// openRoster returns the roster that shows this candidate, and makes its tables if they are
// missing. Failures are logged, and cost no leadership.
func (r *runner) openRoster(pool *sql.DB) (*roster.Roster, error) {
	var tried atomic.Bool
	published, err := roster.New(pool, roster.WithSchema(r.Roster), roster.WithOnError(func(err error) {
		if errors.Is(err, roster.ErrNotMigrated) && !tried.Load() {
			return // it came too early
		}
		r.Log.Warn("the roster was not written", "error", err)
	}), roster.WithOnRecovered(func(after time.Duration) {
		r.Log.Info("the roster is written again", "after", after.Round(time.Millisecond))
	}))
	if err != nil {
		return nil, exit.Usagef("--roster: %v", err)
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := published.Migrate(ctx); err != nil {
			r.Log.Warn("the tables of the roster were not made", "error", err)
		}
		tried.Store(true)
	}()
	return published, nil
}

// closeRoster marks the candidate as left, unless the server does not answer soon.
func closeRoster(published *roster.Roster) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = published.Close(ctx) // if it fails, the candidate shows as silent
}

// leadAlone is the work of a leader without a command: it is done elsewhere, as long as
// /readyz says so.
func leadAlone(ctx context.Context, _ *elector.Term) error {
	<-ctx.Done()
	return nil
}

// closePool closes the pool, unless the driver hangs.
func closePool(pool *sql.DB) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
}

// renew creates the context of the next elector.Run.
func (r *runner) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	if r.leaving != nil {
		r.cancel(r.signalled(r.leaving))
	}
}

// loop campaigns and leads, once or repeatedly.
func (r *runner) loop() error {
	wait := r.RestartDelay
	for {
		err := r.once(r.lead)
		r.mu.Lock()
		leaving, lasted := r.leaving != nil, r.lasted
		r.mu.Unlock()
		if r.Once || leaving || permanent(err) {
			return err
		}
		if lasted >= r.RestartDelayMax {
			wait = r.RestartDelay
		}
		r.Log.Info("campaigning again, to restart the command", "after", wait, "ended", outcomeText(err))
		r.renew()
		if !ask.Sleep(r.ctx, wait) {
			return context.Cause(r.ctx)
		}
		wait = min(2*wait, r.RestartDelayMax)
	}
}

// permanent reports whether a retry is useless. A standby may be promoted.
func permanent(err error) bool {
	if errors.Is(err, elector.ErrServerReadOnly) {
		return false
	}
	switch exit.CodeOf(err) {
	case exit.Usage, exit.Refused, exit.Connect:
		return !errors.Is(err, errCommand)
	}
	return false
}

// once runs elector.Run, from the campaign to the release of the lock.
func (r *runner) once(lead func(context.Context, *elector.Term) error) error {
	r.finished, r.outcome, r.lasted = false, nil, 0
	if r.IfFree && r.FreeWait > 0 {
		timer := time.AfterFunc(r.FreeWait, func() { r.giveUp(r.busy) })
		defer timer.Stop()
	}
	err := r.elector.Run(r.ctx, lead)
	var own *exit.Error
	switch cause := context.Cause(r.ctx); {
	case r.finished:
		return r.outcome
	case errors.As(cause, &own):
		return own
	default:
		return r.explain(err)
	}
}

var (
	// errDone ends elector.Run when the outcome is known.
	errDone = errors.New("the command has ended")
	// errCommand marks the command's exit code.
	errCommand = errors.New("")
)

// busy returns the outcome of --if-free if another leads or the server does not answer.
func (r *runner) busy() error {
	switch {
	case r.lastErr != nil:
		return r.explain(r.lastErr)
	case !r.answered:
		return exit.With(exit.Connect, fmt.Errorf("the server has not answered within --wait %v, or the last leader still has a transaction open there", r.FreeWait))
	}
	fields := []any{"election", r.Election}
	if leader, _ := r.served.last(); leader != "" { // else the holder of the lock has no name
		fields = append(fields, "leader", leader)
	}
	r.Log.Info("another candidate leads, not running the command", append(fields, "waited", r.FreeWait)...)
	return &exit.Error{Code: r.BusyCode, Err: exit.ErrSilent}
}

// giveUp ends the campaign, unless a command was started.
func (r *runner) giveUp(why func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.led && r.ctx.Err() == nil { // an event that follows says no more
		r.cancel(why())
	}
}

// explain gives an error of the library its exit code.
func (r *runner) explain(err error) error { return explain(r.Target, err) }

func explain(target *connect.Target, err error) error {
	known := exit.Classify(err)
	switch code := exit.CodeOf(known); {
	case code == exit.Refused, code == exit.Usage, errors.Is(err, elector.ErrServerReadOnly):
		return known
	}
	return exit.Classify(target.Failed(err))
}

// dispatch forwards signals to the command. If none runs, they end this program.
func (r *runner) dispatch(signals <-chan os.Signal) {
	for sig := range signals {
		r.mu.Lock()
		runs := r.child != nil
		if runs {
			r.Log.Debug("signal forwarded", "signal", sig.String())
			r.child.Signal(sig)
		}
		if supervise.Ends(sig, runs) {
			r.leaving = sig
			if !runs {
				r.cancel(r.signalled(sig))
			}
		}
		r.mu.Unlock()
	}
}

// signalled is the outcome if a signal ends this program while no command runs.
func (r *runner) signalled(sig os.Signal) error {
	if number, _ := sig.(syscall.Signal); r.Once {
		return exit.With(exit.SignalBase+int(number), fmt.Errorf("ended by %v, and the command was not run", sig))
	}
	return signalled(sig)
}

func signalled(sig os.Signal) error {
	return exit.BySignal(sig, fmt.Errorf("ended by %v", sig))
}
