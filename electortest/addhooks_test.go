package electortest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// A hook that is added during a term receives the events from then on, beginning with the next
// OnElected, and none when it was removed. The hooks that were there receive all.
func TestAHookThatIsAddedLaterReceivesTheEventsFromThenOn(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.run("one")
		b.leads(s)
		later := hookstest.NewRecorder()
		remove, err := s.AddHooks(later)
		b.wraps(err)
		time.Sleep(3 * heartbeat)
		if n := len(later.Heartbeats()); n < 2 || n > 3 {
			b.Errorf("it received %d heartbeats", n)
		}
		again := func() {
			term, _ := s.Term()
			b.wraps(term.Resign(b.Context()))
			b.leads(s)
		}
		again()
		again()
		remove()
		remove()
		again()
		if n, all := len(later.Elected()), len(s.rec.Elected()); n != 2 || all != 4 {
			b.Errorf("of %d terms it received %d", all, n)
		}
		if n, all := len(later.Demoted()), len(s.rec.Demoted()); n != 1 || all != 3 {
			b.Errorf("of %d ends it received %d", all, n)
		}
		for _, violation := range later.Violations() {
			b.Error(violation)
		}
		_, err = s.AddHooks(hooks.Funcs{})
		b.wraps(err, elector.ErrConfig)
	})
}

func TestAHookMayRemoveItselfAndAddOthers(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.run("one")
		b.leads(s)
		removes := make(chan func(), 1)
		beats, next := 0, 0
		remove, err := s.AddHooks(hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) {
			beats++
			(<-removes)()
			_, err := s.AddHooks(hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) { next++ }})
			b.wraps(err)
		}})
		b.wraps(err)
		removes <- remove
		time.Sleep(5*heartbeat + time.Second)
		synctest.Wait()
		if beats != 1 || next != 4 {
			b.Errorf("it received %d heartbeats, and the one that it added %d", beats, next)
		}
	})
}

func TestHooksMayBeAddedAndRemovedAtAnyTime(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.run("one")
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 100 {
					later := hookstest.NewRecorder()
					remove, err := s.AddHooks(later)
					b.wraps(err)
					time.Sleep(heartbeat / 3)
					if term, leading := s.Term(); leading {
						_ = term.Resign(b.Context())
					}
					remove()
					for _, violation := range later.Violations() {
						b.Error(violation)
					}
				}
			})
		}
		all.Wait()
	})
}

// LastLeader asks nothing. A follower knows the leader if it has asked, or if a hook wants to.
func TestTheLastLeaderIsRemembered(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		time.Sleep(10 * heartbeat)
		if id, at := leader.LastLeader(); id != "leader" || time.Since(at) > heartbeat {
			b.Errorf("%q, %v ago", id, time.Since(at))
		}
		pool := b.Open()
		defer pool.Close()
		plain, err := elector.New(pool, "orders", elector.WithCandidateID("plain"))
		b.wraps(err)
		try := func() {
			_, elected, err := plain.TryCampaign(b.Context())
			if b.wraps(err); elected {
				b.Error("it is elected")
			}
		}
		knows := func(want string, age time.Duration) {
			b.Helper()
			if id, at := plain.LastLeader(); id != want || id != "" && time.Since(at) != age {
				b.Errorf("%q, %v ago, want %q, %v ago", id, time.Since(at), want, age)
			}
		}
		try()
		knows("", 0)
		_, err = plain.Leader(b.Context())
		b.wraps(err)
		time.Sleep(time.Minute)
		knows("leader", time.Minute)
		remove, err := plain.AddHooks(hooks.Funcs{LeaderChanged: func(context.Context, hooks.LeaderChanged) {}})
		b.wraps(err)
		try()
		knows("leader", 0)
		remove()
		time.Sleep(time.Minute)
		try()
		knows("leader", time.Minute)
		leader.stop()
		b.wraps(<-leader.done, context.Canceled)
		leader.done <- nil
		term := b.campaign(plain)
		knows("plain", 0)
		b.wraps(term.Resign(b.Context()))
		time.Sleep(time.Minute)
		knows("plain", time.Minute)
	})
}
