package hooks_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/hooks"
)

type onValue struct{}

func (onValue) OnElected(context.Context, hooks.Elected) {}

type onPointer struct{}

func (*onPointer) OnElected(context.Context, hooks.Elected) {}

var onElected = hooks.Funcs{Elected: func(context.Context, hooks.Elected) {}}

func TestAHookReceivesTheEventsThatItImplements(t *testing.T) {
	for name, tt := range map[string]struct {
		hook     hooks.Hook
		receives bool
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
		if got := hooks.Wants[hooks.ElectedHook](tt.hook); got != tt.receives {
			t.Errorf("%s: Wants is %t", name, got)
		}
		if hooks.Wants[hooks.HeartbeatHook](tt.hook) {
			t.Errorf("%s: wants heartbeats", name)
		}
		if err := hooks.Check(tt.hook); (err == nil) != tt.receives {
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
		{"Closed", hooks.Wants[hooks.ClosedHook](h)},
	} {
		if event.wanted {
			all = append(all, event.name)
		}
	}
	return strings.Join(all, " ")
}

func TestEachClosedSetListsItsConstantsOnce(t *testing.T) {
	checkSet(t, "Reason", hooks.Reasons())
	checkSet(t, "Op", hooks.Ops())
	checkSet(t, "Outcome", hooks.Outcomes())
}

// checkSet compares a list with the constants in events.go.
func checkSet[S ~string](t *testing.T, name string, listed []S) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "events.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []S
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == name {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, S(value))
		}
		return true
	})
	if !slices.Equal(listed, declared) {
		t.Errorf("%ss lists %q, but %q are declared", name, listed, declared)
	}
}

func TestFuncsCallsTheFunctionOfTheEvent(t *testing.T) {
	for _, event := range eventNames {
		var calls []string
		call(recording(&calls, "f"), event)
		if want := []string{"f " + event}; !slices.Equal(calls, want) {
			t.Errorf("got %q, want %q", calls, want)
		}
	}
}

func TestFuncsSkipsEventsWithoutAFunction(t *testing.T) {
	for _, event := range eventNames {
		call(hooks.Funcs{}, event)
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
		"Closed":        {Closed: func(context.Context, hooks.Closed) {}},
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
		Closed:        func(context.Context, hooks.Closed) { note("Closed") },
	}
}

var eventNames = []string{"Elected", "Demoted", "LeaderChanged", "Error", "Heartbeat", "Campaign", "Closed"}

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
	case "Closed":
		h.(hooks.ClosedHook).OnClosed(ctx, hooks.Closed{})
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
