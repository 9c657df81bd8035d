package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

const (
	settleTime  = 250 * time.Millisecond // for a new follower to follow
	noticeLimit = 20 * time.Second       // for an old leader to notice its loss once another leads
	neverLimit  = 30 * time.Second       // for a system whose followers never lead
)

// trial measures one fault of a leader with one follower, or with two for systems.KillAgain.
type trial struct {
	group
	fault systems.Fault
	began int64 // when the fault happened
}

func (r *run) newTrial(s systems.System, f systems.Fault) *trial {
	t := &trial{group: group{servers: r.servers, system: s, elections: 1}, fault: f}
	t.proxied = f == systems.BlackHole || t.cutsOff()
	return t
}

// cutsOff reports whether the old leader gets no connection after its backends are terminated. Otherwise it
// may be the next leader, if it is told at once, and then no two lead.
func (t *trial) cutsOff() bool {
	return t.fault == systems.Terminate && t.system.Never[systems.Terminate] == ""
}

func (t *trial) run(ctx context.Context) (f results.Failover, err error) {
	defer t.stop()
	if err := t.prepare(ctx); err != nil {
		return f, err
	}
	if err := t.inject(ctx); err != nil {
		return f, err
	}
	return t.observe(ctx)
}

func (t *trial) prepare(ctx context.Context) error {
	followers := 1
	if t.fault == systems.KillAgain {
		followers = 2
	}
	if err := t.start(ctx, followers, followers); err != nil {
		return err
	}
	phase := t.system.Phase
	if t.system.IsQuick(t.fault) {
		phase = min(phase, quickPhase)
	}
	return sleep(ctx, settleTime+rand.N(phase))
}

// inject causes the fault.
func (t *trial) inject(ctx context.Context) error {
	if err := t.leader.Sample(ctx); err != nil {
		return err
	}
	t.began = systems.Now()
	switch t.fault {
	case systems.Resign:
		t.leader.Resign()
		e, err := t.leader.Wait(ctx, systems.Resigning, startTimeout)
		t.began = e.At
		return err
	case systems.Kill:
		return t.leader.Signal(syscall.SIGKILL)
	case systems.KillAgain:
		return t.killTwice(ctx)
	case systems.Freeze:
		return t.leader.Signal(syscall.SIGSTOP)
	case systems.Terminate:
		if t.cutsOff() {
			t.proxy.LeadTo(nil)
		}
		return t.servers.Terminate(ctx, t.leader.Env.ID)
	case systems.BlackHole:
		t.proxy.BlackHole()
		return nil
	case systems.Restart:
		return nil // run.restart restarts the servers for all trials
	}
	return fmt.Errorf("unknown fault %q", t.fault)
}

// killTwice kills the leader, and then the next one.
func (t *trial) killTwice(ctx context.Context) error {
	if err := t.leader.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, next := awaitLeader(ctx, t.began, t.system.Cap, t.followers...)
	if next == nil {
		return fmt.Errorf("%s: nobody leads %v after the first kill", t.system.Name, t.system.Cap)
	}
	if err := sleep(ctx, results.SecondKill-time.Duration(systems.Now()-t.began)); err != nil {
		return err
	}
	t.began = systems.Now()
	return next.Signal(syscall.SIGKILL)
}

// observe waits for the next leader, and until the old one notices its loss.
func (t *trial) observe(ctx context.Context) (results.Failover, error) {
	limit := t.system.Cap
	if t.system.Never[t.fault] != "" {
		limit = neverLimit
	}
	f := results.Failover{System: t.system.Name, Fault: string(t.fault), Cap: limit.Seconds(), Blind: t.system.Blind != ""}
	candidates := t.followers
	if !t.cutsOff() {
		candidates = append(candidates, t.leader)
	}
	next, child := awaitLeader(ctx, t.began, limit, candidates...)
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	if child == nil {
		return f, nil
	}
	f.Gap = millis(next - t.began)
	if f.Blind || slices.Contains([]systems.Fault{systems.Resign, systems.Kill, systems.KillAgain}, t.fault) {
		return f, nil
	}
	if t.fault == systems.Freeze {
		if err := t.leader.Signal(syscall.SIGCONT); err != nil {
			return f, err
		}
	}
	if e, err := t.leader.Wait(ctx, systems.Stopped, noticeLimit); err == nil {
		f.Stale, f.Overlap = millis(max(0, e.At-t.began)), millis(max(0, e.At-next))
	}
	return f, nil
}
