package measure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/bench/internal/child"
	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/systems"
	"github.com/pgelector/pgelector/bench/internal/world"
)

const (
	starting = 40 * time.Second       // for a first leader to lead
	settling = 250 * time.Millisecond // for a follower to follow
	noticing = 20 * time.Second       // for an old leader to notice, once there is a next one
)

// trial is one leader, one follower and one fault.
type trial struct {
	world  *world.World
	system systems.System
	fault  systems.Fault

	leader, follower *child.Child
	link             link  // the leader's, if that is to fail
	began            int64 // the fault
}

// run measures one failover.
func (t *trial) run(ctx context.Context) (f results.Failover, err error) {
	defer t.end()
	if err := t.prepare(ctx); err != nil {
		return f, err
	}
	if err := t.strike(ctx); err != nil {
		return f, err
	}
	return t.observe(ctx)
}

// prepare makes a leader, and a follower that has settled down.
func (t *trial) prepare(ctx context.Context) (err error) {
	w := t.world
	election := w.Name("election")
	if t.system.Prepare != nil {
		if err := t.system.Prepare(ctx, w.DSN(world.Leader, "prepare"), election); err != nil {
			return fmt.Errorf("%s: prepare: %w", t.system.Name, err)
		}
	}
	env := systems.Env{System: t.system.Name, ID: w.Name("leader"), Etcd: w.Etcd.Endpoint, Election: election, Elections: 1}
	env.DSN = w.DSN(world.Leader, env.ID)
	if t.fault == systems.BlackHole {
		if err := t.tunnel(ctx, &env); err != nil {
			return err
		}
	}
	if t.leader, err = child.Start(env); err != nil {
		return err
	}
	if _, err := t.leader.Wait(ctx, systems.Leading, starting); err != nil {
		return err
	}
	env.ID = w.Name("follower")
	env.DSN, env.Etcd = w.DSN(world.Follower, env.ID), w.Etcd.Endpoint
	if t.follower, err = child.Start(env); err != nil {
		return err
	}
	if _, err := t.follower.Wait(ctx, systems.Ready, starting); err != nil {
		return err
	}
	phase := t.system.Phase
	if t.system.IsQuick(t.fault) {
		phase = min(phase, quickPhase)
	}
	return rest(ctx, settling+rand.N(phase))
}

// tunnel leads the leader through a proxy of its own.
func (t *trial) tunnel(ctx context.Context, env *systems.Env) error {
	if t.system.Etcd {
		hole, err := world.NewHole(env.Etcd)
		if err == nil {
			t.link, env.Etcd = hole, hole.Addr()
		}
		return err
	}
	proxy, err := t.world.Proxy(ctx)
	if err == nil {
		t.link, env.DSN = proxy, t.world.ProxyDSN(proxy, world.Leader, env.ID)
	}
	return err
}

// link is a proxy that can swallow everything.
type link interface {
	BlackHole()
	Close() error
}

// strike does the fault.
func (t *trial) strike(ctx context.Context) error {
	if err := t.leader.Arm(ctx); err != nil {
		return err
	}
	t.began = systems.Now()
	switch t.fault {
	case systems.Resign:
		t.leader.Resign()
		e, err := t.leader.Wait(ctx, systems.Resigning, starting)
		t.began = e.At
		return err
	case systems.Kill:
		return t.leader.Signal(syscall.SIGKILL)
	case systems.Freeze:
		return t.leader.Signal(syscall.SIGSTOP)
	case systems.Terminate:
		return t.world.Terminate(ctx, t.leader.Env.ID)
	case systems.BlackHole:
		t.link.BlackHole()
		return nil
	case systems.Restart:
		return nil // the server is everybody's: see restart.go
	}
	return errors.New("unknown fault")
}

// observe waits for the next leader, and for the old one to know.
func (t *trial) observe(ctx context.Context) (results.Failover, error) {
	limit := t.system.Cap
	if t.system.Never[t.fault] != "" {
		limit = 30 * time.Second
	}
	f := results.Failover{System: t.system.Name, Fault: string(t.fault), Cap: limit.Seconds(), Blind: t.system.Blind != ""}
	next, ok := t.next(ctx, limit)
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	if ok {
		f.Gap = millis(next - t.began)
	}
	if t.fault == systems.Resign || t.fault == systems.Kill || f.Blind || !ok {
		return f, nil
	}
	if t.fault == systems.Freeze {
		if err := t.leader.Signal(syscall.SIGCONT); err != nil {
			return f, err
		}
	}
	if e, err := t.leader.Wait(ctx, systems.Stopped, noticing); err == nil {
		f.Stale, f.Overlap = millis(max(0, e.At-t.began)), millis(max(0, e.At-next))
	}
	return f, nil
}

// next waits for the next start of a leader's work, in either process.
func (t *trial) next(ctx context.Context, limit time.Duration) (at int64, ok bool) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		a, aLeads, aNews := t.leader.After(systems.Leading, t.began+1)
		b, bLeads, bNews := t.follower.After(systems.Leading, t.began+1)
		switch {
		case aLeads && bLeads:
			return min(a.At, b.At), true
		case aLeads:
			return a.At, true
		case bLeads:
			return b.At, true
		}
		select {
		case <-aNews:
		case <-bNews:
		case <-timeout.C:
			return 0, false
		case <-ctx.Done():
			return 0, false
		}
	}
}

func (t *trial) end() {
	for _, c := range []*child.Child{t.leader, t.follower} {
		if c != nil {
			c.Stop()
		}
	}
	if t.link != nil {
		_ = t.link.Close()
	}
}

func millis(ns int64) *float64 {
	ms := float64(ns) / 1e6
	return &ms
}

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
