package hooks_test

import (
	"context"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/hooks"
)

type onValue struct{}

func (onValue) OnElected(context.Context, hooks.Elected) {}

type onPointer struct{}

func (*onPointer) OnElected(context.Context, hooks.Elected) {}

var onElected = hooks.Funcs{Elected: func(context.Context, hooks.Elected) {}}

func TestAHookIsToldOfWhatItImplementsAndOfNothingElse(t *testing.T) {
	for name, tt := range map[string]struct {
		hook hooks.Hook
		told bool
	}{
		"a method on the value":                    {onValue{}, true},
		"a method on the value, given the pointer": {&onValue{}, true},
		"a method on the pointer":                  {&onPointer{}, true},
		"a method on the pointer, given the value": {onPointer{}, false},
		"a function":                         {onElected, true},
		"no function":                        {hooks.Funcs{}, false},
		"no hook":                            {nil, false},
		"a value without a method":           {"a string", false},
		"a join of nothing":                  {hooks.Join(), false},
		"a join of nil":                      {hooks.Join(nil, nil), false},
		"a join of hooks without an event":   {hooks.Join(hooks.Funcs{}, 7), false},
		"a join with one hook with an event": {hooks.Join(hooks.Funcs{}, onValue{}), true},
		"a join in a join with such a hook":  {hooks.Join(hooks.Join(), hooks.Join(onElected)), true},
	} {
		if got := hooks.Wants[hooks.ElectedHook](tt.hook); got != tt.told {
			t.Errorf("%s: Wants is %t", name, got)
		}
		if hooks.Wants[hooks.HeartbeatHook](tt.hook) {
			t.Errorf("%s: wants heartbeats", name)
		}
		if err := hooks.Check(tt.hook); (err == nil) != tt.told {
			t.Errorf("%s: Check returns %v", name, err)
		}
	}
}

func TestCheckNamesTheTypeAndTheLikelyMistake(t *testing.T) {
	err := hooks.Check(onPointer{})
	if err == nil || !strings.Contains(err.Error(), "hooks_test.onPointer") ||
		!strings.Contains(err.Error(), "on the pointer") {
		t.Errorf("got %v", err)
	}
}

// wants lists the events that h receives.
func wants(h hooks.Hook) string {
	var all []string
	for _, event := range []struct {
		name   string
		wanted bool
	}{
		{"Elected", hooks.Wants[hooks.ElectedHook](h)},
		{"Demoted", hooks.Wants[hooks.DemotedHook](h)},
		{"LeaderChanged", hooks.Wants[hooks.LeaderChangedHook](h)},
		{"Error", hooks.Wants[hooks.ErrorHook](h)},
		{"Heartbeat", hooks.Wants[hooks.HeartbeatHook](h)},
		{"Campaign", hooks.Wants[hooks.CampaignHook](h)},
	} {
		if event.wanted {
			all = append(all, event.name)
		}
	}
	return strings.Join(all, " ")
}
