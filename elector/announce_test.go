package elector

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// While a hook is slow, a newer heartbeat replaces one that waits. Other events are kept.
func TestOnlyHeartbeatsThatWaitAreReplaced(t *testing.T) {
	slow := make(chan struct{})
	var got []string
	a := newAnnouncer(hooks.Origin{}, []hooks.Hook{hooks.Funcs{
		Error: func(_ context.Context, f hooks.Failure) {
			<-slow
			got = append(got, string(f.Op))
		},
		Heartbeat: func(_ context.Context, h hooks.Heartbeat) { got = append(got, h.Took.String()) },
	}})
	fail := func(op hooks.Op) { a.post(a.failure(t.Context(), hooks.Failure{Op: op})) }
	fail("slow")
	a.heartbeat(t.Context(), hooks.Heartbeat{Took: 1})
	fail("a")
	a.heartbeat(t.Context(), hooks.Heartbeat{Took: 2})
	a.heartbeat(t.Context(), hooks.Heartbeat{Took: 3})
	fail("b")
	fail("c")
	close(slow)
	a.flush()
	if want := []string{"slow", "1ns", "a", "3ns", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEachEventHasItsOriginAndTime(t *testing.T) {
	origin := hooks.Origin{Election: "orders", Key: 7, CandidateID: "web-1"}
	began := time.Now()
	seen := 0
	check := func(got hooks.Origin, at time.Time) {
		seen++
		if got != origin || at.Before(began) || at.After(time.Now()) {
			t.Errorf("event %d: got %+v, %v", seen, got, at)
		}
	}
	a := newAnnouncer(origin, []hooks.Hook{hooks.Funcs{
		Campaign:      func(_ context.Context, c hooks.Campaign) { check(c.Origin, c.At) },
		Elected:       func(_ context.Context, e hooks.Elected) { check(e.Origin, e.At) },
		LeaderChanged: func(_ context.Context, c hooks.LeaderChanged) { check(c.Origin, c.At) },
		Heartbeat:     func(_ context.Context, h hooks.Heartbeat) { check(h.Origin, h.At) },
		Error:         func(_ context.Context, f hooks.Failure) { check(f.Origin, f.At) },
		Demoted:       func(_ context.Context, d hooks.Demoted) { check(d.Origin, d.At) },
	}})
	ctx := t.Context()
	a.announce(a.campaign(ctx, hooks.Campaign{}))
	a.announce(a.elected(ctx, hooks.Elected{At: time.Now()}, func(error) {}))
	a.announce(a.leaderChanged(ctx, hooks.LeaderChanged{}))
	a.heartbeat(ctx, hooks.Heartbeat{})
	a.announce(a.failure(ctx, hooks.Failure{}))
	a.announce(a.demoted(ctx, hooks.Demoted{At: time.Now()}))
	if seen != 6 {
		t.Errorf("got %d events, want 6", seen)
	}
}
