package hooks_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/hooks"
)

// recording returns a hook that records its name and the name of each event in calls.
func recording(calls *[]string, name string) hooks.Funcs {
	note := func(event string) { *calls = append(*calls, name+" "+event) }
	return hooks.Funcs{
		Elected:       func(context.Context, hooks.Elected) { note("Elected") },
		Demoted:       func(context.Context, hooks.Demoted) { note("Demoted") },
		LeaderChanged: func(context.Context, hooks.LeaderChanged) { note("LeaderChanged") },
		Error:         func(context.Context, hooks.Failure) { note("Error") },
		Heartbeat:     func(context.Context, hooks.Heartbeat) { note("Heartbeat") },
		Campaign:      func(context.Context, hooks.Campaign) { note("Campaign") },
	}
}

var eventNames = []string{"Elected", "Demoted", "LeaderChanged", "Error", "Heartbeat", "Campaign"}

// call calls the method of h for the named event.
func call(h hooks.Hook, event string) {
	ctx := context.Background()
	switch event {
	case "Elected":
		h.(hooks.ElectedHook).OnElected(ctx, hooks.Elected{})
	case "Demoted":
		h.(hooks.DemotedHook).OnDemoted(ctx, hooks.Demoted{})
	case "LeaderChanged":
		h.(hooks.LeaderChangedHook).OnLeaderChanged(ctx, hooks.LeaderChanged{})
	case "Error":
		h.(hooks.ErrorHook).OnError(ctx, hooks.Failure{})
	case "Heartbeat":
		h.(hooks.HeartbeatHook).OnHeartbeat(ctx, hooks.Heartbeat{})
	case "Campaign":
		h.(hooks.CampaignHook).OnCampaign(ctx, hooks.Campaign{})
	}
}

func TestAJoinCallsItsHooksInOrder(t *testing.T) {
	for _, event := range eventNames {
		var calls []string
		call(hooks.Join(recording(&calls, "1"), recording(&calls, "2"), recording(&calls, "3")), event)
		if want := []string{"1 " + event, "2 " + event, "3 " + event}; !slices.Equal(calls, want) {
			t.Errorf("got %q, want %q", calls, want)
		}
	}
}

func TestANestedJoinKeepsItsPlace(t *testing.T) {
	var calls []string
	inner := hooks.Join(recording(&calls, "2"), hooks.Join(recording(&calls, "3")))
	call(hooks.Join(recording(&calls, "1"), inner, recording(&calls, "4")), "Elected")
	if want := []string{"1 Elected", "2 Elected", "3 Elected", "4 Elected"}; !slices.Equal(calls, want) {
		t.Errorf("got %q, want %q", calls, want)
	}
}

func TestAJoinSkipsHooksThatAreNilOrLackTheEvent(t *testing.T) {
	var calls []string
	h := hooks.Join(nil, recording(&calls, "1"), hooks.Funcs{}, onValue{}, nil, recording(&calls, "2"))
	call(h, "Demoted")
	if want := []string{"1 Demoted", "2 Demoted"}; !slices.Equal(calls, want) {
		t.Errorf("got %q, want %q", calls, want)
	}
}

func TestAnEmptyJoinMayBeCalled(t *testing.T) {
	for _, event := range eventNames {
		call(hooks.Join(), event)
	}
}

func TestAPanicDoesNotKeepTheEventFromOtherHooks(t *testing.T) {
	var calls []string
	panics := hooks.Funcs{Demoted: func(context.Context, hooks.Demoted) { panic("oops") }}
	for name, h := range map[string]hooks.Hook{
		"first":  hooks.Join(panics, recording(&calls, "1"), recording(&calls, "2")),
		"middle": hooks.Join(recording(&calls, "1"), panics, recording(&calls, "2")),
		"last":   hooks.Join(recording(&calls, "1"), recording(&calls, "2"), panics),
		"nested": hooks.Join(recording(&calls, "1"), hooks.Join(panics, hooks.Funcs{}), recording(&calls, "2")),
		"each":   hooks.Join(panics, recording(&calls, "1"), panics, recording(&calls, "2"), panics),
	} {
		calls = nil
		var reached any
		func() {
			defer func() { reached = recover() }()
			call(h, "Demoted")
		}()
		if reached != "oops" {
			t.Errorf("%s: the caller recovered %v", name, reached)
		}
		if want := []string{"1 Demoted", "2 Demoted"}; !slices.Equal(calls, want) {
			t.Errorf("%s: got %q, want %q", name, calls, want)
		}
	}
}

func TestAJoinWantsWhatAnyOfItsHooksWants(t *testing.T) {
	var calls []string
	if got := wants(hooks.Join(recording(&calls, ""))); got != strings.Join(eventNames, " ") {
		t.Errorf("wants %q", got)
	}
	campaign := hooks.Funcs{Campaign: func(context.Context, hooks.Campaign) {}}
	if got := wants(hooks.Join(campaign, onElected)); got != "Elected Campaign" {
		t.Errorf("wants %q", got)
	}
}
