package hooks_test

import (
	"context"
	"slices"
	"testing"

	"github.com/pgelector/pgelector/hooks"
)

func TestFuncsCallsTheFunctionOfTheEvent(t *testing.T) {
	for _, event := range eventNames {
		var told []string
		tell(telling(&told, "f"), event)
		if want := []string{"f " + event}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	}
}

func TestFuncsSkipsEventsWithoutAFunction(t *testing.T) {
	for _, event := range eventNames {
		tell(hooks.Funcs{}, event)
	}
}

func TestFuncsWantsOnlyTheEventsOfItsFunctions(t *testing.T) {
	for name, f := range map[string]hooks.Funcs{
		"":              {},
		"Elected":       {Elected: func(context.Context, hooks.Elected) {}},
		"Demoted":       {Demoted: func(context.Context, hooks.Demoted) {}},
		"LeaderChanged": {LeaderChanged: func(context.Context, hooks.LeaderChanged) {}},
		"Error":         {Error: func(context.Context, hooks.Failure) {}},
		"Heartbeat":     {Heartbeat: func(context.Context, hooks.Heartbeat) {}},
		"Campaign":      {Campaign: func(context.Context, hooks.Campaign) {}},
	} {
		if got := wants(f); got != name {
			t.Errorf("wants %q, want %q", got, name)
		}
	}
}

func TestFuncsPassesOnTheContextAndTheEvent(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(context.Background(), key{}, 1)
	f := hooks.Funcs{Elected: func(got context.Context, e hooks.Elected) {
		if got != ctx || e.Token != 7 {
			t.Errorf("got %v and %+v", got, e)
		}
	}}
	f.OnElected(ctx, hooks.Elected{Token: 7})
}
