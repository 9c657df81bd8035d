//go:build unix

package runner

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/supervise"
	"github.com/pgelector/pgelector/elector"
)

// The environment variables of the command, documented in docs/command.md.
const (
	EnvElection  = "PGELECTOR_ELECTION"
	EnvCandidate = "PGELECTOR_CANDIDATE"
	EnvKey       = "PGELECTOR_KEY"
	EnvToken     = "PGELECTOR_TOKEN"
	EnvDeadline  = "PGELECTOR_LEASE_DEADLINE"
	EnvGroup     = "PGELECTOR_GROUP"
	EnvShard     = "PGELECTOR_SHARD"
	EnvShards    = "PGELECTOR_SHARDS"
)

// lead runs the command during the term, and returns when no process of it is left.
func (r *runner) lead(ctx context.Context, term *elector.Term) error {
	began := time.Now()
	child, err := r.start(term)
	switch {
	case err != nil:
		r.end(err)
		return nil
	case child == nil:
		<-ctx.Done() // returning earlier would resign
		return nil
	}
	select {
	case <-child.Started():
		if pid := child.PID(); pid != 0 {
			r.Log.Info("command started", "pid", pid, "command", r.Command[0], "token", strconv.FormatInt(term.Token(), 10))
		}
	case <-ctx.Done():
	}
	select {
	case <-child.Gone():
	case <-ctx.Done():
		child.Stop()
		r.Log.Warn("leadership lost, ending the command", "pid", child.PID(), "grace", r.Grace, "cause", context.Cause(ctx))
		<-child.Gone()
	}
	result := child.Result()
	r.mu.Lock()
	r.child = nil
	r.lasted = time.Since(began)
	switch {
	case result.FromTTY:
		r.leaving = os.Interrupt
	case result.Code == exit.SignalBase+int(syscall.SIGQUIT): // whoever sent it wanted that
		r.leaving = syscall.SIGQUIT
	}
	stopped := r.leaving == syscall.SIGTERM && !r.Once
	r.mu.Unlock()
	r.Log.Info("command ended", "pid", child.PID(), "result", result.String(), "lasted", time.Since(began).Round(time.Millisecond))
	if lost := result.Stopped && !result.GuardLost; lost {
		r.lost(ctx)
		return nil
	}
	r.hold(ctx, began, result)
	if stopped && result.Code == exit.SignalBase+int(syscall.SIGTERM) {
		result.Code = exit.OK // it ended as it was asked to; a command that is run once was not done
	}
	r.end(commandOutcome(result))
	return nil
}

// start starts the command, or returns nil if the run is over or the term has ended. The
// mutex orders it with signals and --wait, which end the campaign.
func (r *runner) start(term *elector.Term) (*supervise.Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil || !term.Valid() {
		return nil, nil
	}
	child, err := r.reaper.Start(supervise.Options{
		Guard: r.Guard, Command: r.Command,
		Env:   environment(r.Election, r.elector.CandidateID(), r.elector.Key(), term),
		Grace: r.Grace, Drain: r.Drain, Deadline: term.Deadline(),
	})
	if err != nil {
		return nil, err
	}
	r.child, r.led = child, true
	return child, nil
}

// environment returns the environment of a command during a term.
func environment(election, candidate string, key int64, term *elector.Term) []string {
	return append(inherited(),
		EnvElection+"="+election,
		EnvCandidate+"="+candidate,
		EnvKey+"="+strconv.FormatInt(key, 10),
		EnvToken+"="+strconv.FormatInt(term.Token(), 10),
		EnvDeadline+"="+term.Deadline().UTC().Format(time.RFC3339Nano))
}

// inherited returns this program's environment without the variables of an enclosing run:
// some programs take the first of two values.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{EnvElection, EnvCandidate, EnvKey, EnvToken, EnvDeadline, EnvGroup, EnvShard, EnvShards}, name)
	})
}

// lost handles a lost term: elector.Run campaigns again, or ends.
func (r *runner) lost(ctx context.Context) {
	why := context.Cause(ctx)
	if why == nil { // the guard acted first
		why = elector.ErrLeaseExpired
	}
	if !r.Once && !r.isLeaving() {
		r.Log.Info("campaigning again")
		return
	}
	r.end(exit.With(exit.Lost, fmt.Errorf("leadership was lost, so the command was ended: %w", why)))
}

func (r *runner) isLeaving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving != nil
}

// hold keeps the lock until --hold is over, if the command succeeded.
func (r *runner) hold(ctx context.Context, began time.Time, result supervise.Result) {
	left := r.Hold - time.Since(began)
	if left <= 0 || result.Code != exit.OK || r.isLeaving() {
		return
	}
	r.Log.Debug("keeping the lock", "for", left.Round(time.Millisecond))
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-r.ctx.Done():
	}
}

// end sets the outcome, and makes elector.Run return after lead. Even if the term is lost at
// this moment, it must not campaign again.
func (r *runner) end(outcome error) {
	r.finished, r.outcome = true, outcome
	r.cancel(errDone)
}

// commandOutcome returns the command's exit status.
func commandOutcome(result supervise.Result) error {
	switch {
	case result.StartError != "":
		return exit.With(result.Code, fmt.Errorf("start the command: %s%w", result.StartError, errCommand))
	case result.GuardLost:
		return exit.With(result.Code, fmt.Errorf("the guard was killed, and the command with it%w", errCommand))
	case result.Code == exit.OK:
		return nil
	}
	return &exit.Error{Code: result.Code, Err: fmt.Errorf("%w%w", exit.ErrSilent, errCommand)}
}

func outcomeText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return fmt.Sprintf("exit status %d", exit.CodeOf(err))
}
