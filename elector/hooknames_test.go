package elector

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/lease"
)

// An error that names the hook that does not return takes the name from a constant, because
// reflection would have the linker keep all methods of a user's program.
func TestAHookThatIsBeingCalledIsNamedByItsOwnMethod(t *testing.T) {
	var a *announcer
	named := map[string]string{}
	note := func(method string) { named[method] = a.busy() }
	a = newAnnouncer(hooks.Origin{}, []hooks.Hook{hooks.Funcs{
		Elected:       func(context.Context, hooks.Elected) { note("OnElected") },
		Demoted:       func(context.Context, hooks.Demoted) { note("OnDemoted") },
		LeaderChanged: func(context.Context, hooks.LeaderChanged) { note("OnLeaderChanged") },
		Error:         func(context.Context, hooks.Failure) { note("OnError") },
		Heartbeat:     func(context.Context, hooks.Heartbeat) { note("OnHeartbeat") },
		Campaign:      func(context.Context, hooks.Campaign) { note("OnCampaign") },
		Closed:        func(context.Context, hooks.Closed) { note("OnClosed") },
	}}, lease.Lease{Drain: time.Minute})
	ctx := t.Context()
	for _, call := range []func(){
		a.elected(ctx, hooks.Elected{}, func(error) {}), a.demoted(ctx, hooks.Demoted{}), a.leaderChanged(ctx, hooks.LeaderChanged{}),
		a.failure(ctx, hooks.Failure{}), a.campaign(ctx, hooks.Campaign{}),
	} {
		call()
	}
	a.heartbeat(ctx, hooks.Heartbeat{})
	a.close()

	all, want := reflect.TypeFor[hooks.All](), map[string]string{}
	for i := range all.NumMethod() {
		method := all.Method(i).Name
		want[method] = fmt.Sprintf(" (%s of %T goes on)", method, hooks.Funcs{})
	}
	if !maps.Equal(named, want) {
		t.Errorf("got %v for %v", named, slices.Sorted(maps.Keys(want)))
	}
}
