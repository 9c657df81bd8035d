package hooks_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/hooks"
)

// telling returns a hook that records its name and each event's name.
func telling(told *[]string, name string) hooks.Funcs {
	note := func(event string) { *told = append(*told, name+" "+event) }
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

// tell calls the method of h for the named event.
func tell(h hooks.Hook, event string) {
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

func TestAJoinTellsEveryEventInTheOrderGiven(t *testing.T) {
	for _, event := range eventNames {
		var told []string
		tell(hooks.Join(telling(&told, "1"), telling(&told, "2"), telling(&told, "3")), event)
		if want := []string{"1 " + event, "2 " + event, "3 " + event}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	}
}

func TestANestedJoinKeepsItsPlace(t *testing.T) {
	var told []string
	inner := hooks.Join(telling(&told, "2"), hooks.Join(telling(&told, "3")))
	tell(hooks.Join(telling(&told, "1"), inner, telling(&told, "4")), "Elected")
	if want := []string{"1 Elected", "2 Elected", "3 Elected", "4 Elected"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestAJoinPassesByHooksThatAreNilOrDoNotListen(t *testing.T) {
	var told []string
	h := hooks.Join(nil, telling(&told, "1"), hooks.Funcs{}, onValue{}, nil, telling(&told, "2"))
	tell(h, "Demoted")
	if want := []string{"1 Demoted", "2 Demoted"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestAJoinOfNothingMayBeTold(t *testing.T) {
	for _, event := range eventNames {
		tell(hooks.Join(), event)
	}
}

func TestAPanicKeepsTheEventFromNoOtherHook(t *testing.T) {
	var told []string
	panics := hooks.Funcs{Demoted: func(context.Context, hooks.Demoted) { panic("oops") }}
	for name, h := range map[string]hooks.Hook{
		"first":  hooks.Join(panics, telling(&told, "1"), telling(&told, "2")),
		"middle": hooks.Join(telling(&told, "1"), panics, telling(&told, "2")),
		"last":   hooks.Join(telling(&told, "1"), telling(&told, "2"), panics),
		"nested": hooks.Join(telling(&told, "1"), hooks.Join(panics, hooks.Funcs{}), telling(&told, "2")),
		"each":   hooks.Join(panics, telling(&told, "1"), panics, telling(&told, "2"), panics),
	} {
		told = nil
		var reached any
		func() {
			defer func() { reached = recover() }()
			tell(h, "Demoted")
		}()
		if reached != "oops" {
			t.Errorf("%s: the caller recovered %v", name, reached)
		}
		if want := []string{"1 Demoted", "2 Demoted"}; !slices.Equal(told, want) {
			t.Errorf("%s: told %q, want %q", name, told, want)
		}
	}
}

func TestAJoinWantsWhatAnyOfItsHooksWants(t *testing.T) {
	var told []string
	if got := wants(hooks.Join(telling(&told, ""))); got != strings.Join(eventNames, " ") {
		t.Errorf("wants %q", got)
	}
	campaign := hooks.Funcs{Campaign: func(context.Context, hooks.Campaign) {}}
	if got := wants(hooks.Join(campaign, onElected)); got != "Elected Campaign" {
		t.Errorf("wants %q", got)
	}
}
