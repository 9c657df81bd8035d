//go:build unix

package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// hook returns this program's reactions to events, besides logging.
func (r *runner) hook() hooks.Funcs {
	return hooks.Funcs{
		Heartbeat: r.onHeartbeat,
		Error:     r.onError,
		Campaign:  r.onCampaign,
	}
}

// tries reports whether this program makes one attempt, and ends.
func (r *runner) tries() bool { return r.IfFree && r.FreeWait == 0 }

// logged passes events on to the log. The only attempt of --if-free that finds another leader has a line of its own, so the
// log is not told who leads, or that this candidate has become the deputy for a moment.
func (r *runner) logged(to hooks.Hook) hooks.Hook {
	if !r.tries() {
		return to
	}
	all := hooks.Join(to)
	return hooks.Funcs{
		Elected:   all.(hooks.ElectedHook).OnElected,
		Demoted:   all.(hooks.DemotedHook).OnDemoted,
		Heartbeat: all.(hooks.HeartbeatHook).OnHeartbeat,
		Closed:    all.(hooks.ClosedHook).OnClosed,
		Error:     all.(hooks.ErrorHook).OnError,
		Campaign: func(ctx context.Context, e hooks.Campaign) {
			if e.Outcome != hooks.Busy {
				all.(hooks.CampaignHook).OnCampaign(ctx, e)
			}
		},
	}
}

// reports passes events on, except ErrOverrun if no process of the command is left. After a
// freeze the guard has ended the command in time, but lead has not returned yet.
func (r *runner) reports(to ...hooks.Hook) hooks.Hook {
	return withoutOverruns(func(string) bool { return r.commandLives() }, to...)
}

func withoutOverruns(lives func(election string) bool, to ...hooks.Hook) hooks.Hook {
	all := hooks.Join(to...)
	return hooks.Funcs{
		Elected:       all.(hooks.ElectedHook).OnElected,
		Demoted:       all.(hooks.DemotedHook).OnDemoted,
		LeaderChanged: all.(hooks.LeaderChangedHook).OnLeaderChanged,
		Heartbeat:     all.(hooks.HeartbeatHook).OnHeartbeat,
		Campaign:      all.(hooks.CampaignHook).OnCampaign,
		Closed:        all.(hooks.ClosedHook).OnClosed,
		Error: func(ctx context.Context, e hooks.Failure) {
			if errors.Is(e.Err, elector.ErrOverrun) && !lives(e.Election) {
				return
			}
			all.(hooks.ErrorHook).OnError(ctx, e)
		},
	}
}

// sayingSeat passes events on to a log. In a group it says which election is no shard, but the
// member's seat, by which the members are counted.
func sayingSeat(group string, to hooks.Hook) hooks.Hook {
	all := hooks.Join(to)
	say := func(o *hooks.Origin) {
		if number, is := strings.CutPrefix(o.Election, group+"#"); is {
			o.Election = "seat " + number + " of " + group
		}
	}
	return hooks.Funcs{
		Elected: func(ctx context.Context, e hooks.Elected) { say(&e.Origin); all.(hooks.ElectedHook).OnElected(ctx, e) },
		Demoted: func(ctx context.Context, e hooks.Demoted) { say(&e.Origin); all.(hooks.DemotedHook).OnDemoted(ctx, e) },
		LeaderChanged: func(ctx context.Context, e hooks.LeaderChanged) {
			say(&e.Origin)
			all.(hooks.LeaderChangedHook).OnLeaderChanged(ctx, e)
		},
		Heartbeat: func(ctx context.Context, e hooks.Heartbeat) {
			say(&e.Origin)
			all.(hooks.HeartbeatHook).OnHeartbeat(ctx, e)
		},
		Campaign: func(ctx context.Context, e hooks.Campaign) {
			say(&e.Origin)
			all.(hooks.CampaignHook).OnCampaign(ctx, e)
		},
		Closed: func(ctx context.Context, e hooks.Closed) { say(&e.Origin); all.(hooks.ClosedHook).OnClosed(ctx, e) },
		Error:  func(ctx context.Context, e hooks.Failure) { say(&e.Origin); all.(hooks.ErrorHook).OnError(ctx, e) },
	}
}

func (r *runner) commandLives() bool {
	r.mu.Lock()
	child := r.child
	r.mu.Unlock()
	return child != nil && child.Alive()
}

// onHeartbeat moves the guard's deadline.
func (r *runner) onHeartbeat(_ context.Context, e hooks.Heartbeat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.child != nil {
		r.child.Extend(e.Deadline)
	}
}

// onError gives up if a server that has never answered refuses the login. Later refusals
// are retried, because a password may change while this program runs.
func (r *runner) onError(_ context.Context, e hooks.Failure) {
	if e.Op != hooks.OpCampaign {
		return
	}
	r.mu.Lock()
	answered := r.answered
	r.lastErr = e.Err
	r.mu.Unlock()
	if !answered && connect.Refused(e.Err) {
		r.giveUp(func() error { return r.explain(e.Err) })
	}
}

// onCampaign ends the campaign of --if-free after the first answer. It ends that of --once on a server
// that is too new to lead on; with WithSynchronousStandby each new process has to wait.
func (r *runner) onCampaign(_ context.Context, e hooks.Campaign) {
	if e.Outcome != hooks.Failed {
		r.mu.Lock()
		r.answered, r.lastErr = true, nil
		r.mu.Unlock()
	}
	switch {
	case e.Outcome == hooks.TooEarly && r.LockDelay != 0 && r.Synchronous == 0 && r.Once && (r.tries() || !r.IfFree):
		r.giveUp(func() error {
			return exit.Classify(fmt.Errorf("%w: wait another %v", elector.ErrTooEarly, e.Next.Round(time.Millisecond)))
		})
	case r.tries() && e.Outcome != hooks.Granted:
		r.giveUp(r.busy)
	}
}
