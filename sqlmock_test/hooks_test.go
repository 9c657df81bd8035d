package sqlmock_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// everyHook calls f in each hook, with the hook's name.
func everyHook(f func(ctx context.Context, name string)) hooks.Funcs {
	return hooks.Funcs{
		Elected:       func(ctx context.Context, _ hooks.Elected) { f(ctx, "Elected") },
		Demoted:       func(ctx context.Context, _ hooks.Demoted) { f(ctx, "Demoted") },
		LeaderChanged: func(ctx context.Context, _ hooks.LeaderChanged) { f(ctx, "LeaderChanged") },
		Error:         func(ctx context.Context, _ hooks.Failure) { f(ctx, "Error") },
		Heartbeat:     func(ctx context.Context, _ hooks.Heartbeat) { f(ctx, "Heartbeat") },
		Campaign:      func(ctx context.Context, _ hooks.Campaign) { f(ctx, "Campaign") },
	}
}

// oneTerm plays a failed attempt, a busy one, and a term with two heartbeats.
func oneTerm(t *testing.T, inside ...hooks.Hook) (*hookstest.Recorder, error) {
	pool, mock := newMock(t)
	expectAttemptUpTo(mock, 0, anyError[0])
	expectServerCheck(mock)
	expectBusy(mock, 300, "web-2")
	expectElection(mock, 1)
	expectHeartbeats(mock, 2)
	expectResign(mock)
	rec := hookstest.NewRecorder(inside...)
	e, err := elector.New(pool, "orders", elector.WithHooks(rec))
	wantError(t, err)
	term := campaign(t, e)
	time.Sleep(5 * time.Second)
	err = term.Resign(t.Context())
	settle()
	for _, v := range rec.Violations() {
		t.Error(v)
	}
	return rec, err
}

func names(rec *hookstest.Recorder) []string {
	var all []string
	for _, event := range rec.Events() {
		switch e := event.(type) {
		case hooks.Elected:
			all = append(all, "Elected")
		case hooks.Demoted:
			all = append(all, "Demoted")
		case hooks.LeaderChanged:
			all = append(all, "LeaderChanged to "+e.Current)
		case hooks.Failure:
			all = append(all, "Failure "+string(e.Op))
		case hooks.Heartbeat:
			all = append(all, "Heartbeat")
		case hooks.Campaign:
			all = append(all, "Campaign "+string(e.Outcome))
		}
	}
	return all
}

func TestHooksAreToldInThisOrder(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		rec, err := oneTerm(t)
		wantError(t, err)
		id := rec.Elected()[0].CandidateID
		want := []string{"Failure campaign", "Campaign failed", "LeaderChanged to web-2", "Campaign busy", "Campaign granted",
			"LeaderChanged to " + id, "Elected", "Heartbeat", "Heartbeat", "Demoted", "LeaderChanged to "}
		if got := names(rec); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

func TestAPanicInAHookIsReportedAndOnlyThatOfOnElectedEndsTheTerm(t *testing.T) {
	for _, which := range []string{"Elected", "Demoted", "LeaderChanged", "Error", "Heartbeat", "Campaign"} {
		bubble(t, which, func(t *testing.T) {
			panicked := 0
			rec, err := oneTermWith(t, which == "Elected", everyHook(func(_ context.Context, name string) {
				if name == which {
					panicked++
					panic("boom in " + name)
				}
			}))
			wantError(t, err)
			reported := 0
			for _, f := range rec.Failures() {
				if f.Op == hooks.OpHook {
					reported++
					if !contains(f.Err, "boom in "+which) {
						t.Errorf("reported %v", f.Err)
					}
				}
			}
			if panicked == 0 || reported == 0 {
				t.Errorf("panicked %d times, reported %d times", panicked, reported)
			}
			reason := hooks.Resigned
			if which == "Elected" {
				reason = hooks.LeadFailed
				wantError(t, rec.Demoted()[0].Err, elector.ErrLeadFailed)
				if !contains(rec.Demoted()[0].Err, "boom in "+which) {
					t.Errorf("the term has ended by %v", rec.Demoted()[0].Err)
				}
			}
			wantDemoted(t, rec, reason)
		})
	}
}

// oneTermWith is oneTerm, whose term may end at once.
func oneTermWith(t *testing.T, ends bool, inside hooks.Hook) (*hookstest.Recorder, error) {
	if !ends {
		return oneTerm(t, inside)
	}
	pool, mock := newMock(t)
	expectTerm(mock, 1)
	expectResign(mock)
	rec := hookstest.NewRecorder(inside)
	e, err := elector.New(pool, "orders", elector.WithHooks(rec))
	wantError(t, err)
	term := campaign(t, e)
	<-term.Context().Done()
	return rec, term.Resign(t.Context())
}

// A test that fails inside a hook ends its goroutine by runtime.Goexit.
func TestAGoexitInAHookStopsNoOtherHookAndHangsNothing(t *testing.T) {
	for _, which := range []string{"Elected", "Demoted", "LeaderChanged", "Error", "Heartbeat", "Campaign"} {
		bubble(t, which, func(t *testing.T) {
			rec, err := oneTerm(t, everyHook(func(_ context.Context, name string) {
				if name == which {
					runtime.Goexit()
				}
			}))
			wantError(t, err)
			wantDemoted(t, rec, hooks.Resigned)
			if n := len(rec.Heartbeats()); n != 2 {
				t.Errorf("%d heartbeats", n)
			}
		})
	}
}

func TestTheContextsOfHooksCarryValuesAndOnlyThatOfOnElectedEnds(t *testing.T) {
	type key struct{}
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectAttemptUpTo(mock, 0, anyError[0])
		expectTerm(mock, 1)
		expectHeartbeats(mock, 1)
		expectResign(mock)
		seen := map[string]context.Context{}
		e, _ := newElector(t, pool, elector.WithHooks(everyHook(func(ctx context.Context, name string) { seen[name] = ctx })))
		ctx, stop := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), 4050*time.Millisecond)
		defer stop()
		wantError(t, e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
			time.Sleep(3 * time.Second)
			settle()
			if seen["Elected"] != term.Context() {
				t.Error("OnElected got another context")
			}
			<-ctx.Done()
			return nil
		}), context.DeadlineExceeded)
		if len(seen) != 6 {
			t.Errorf("called: %v", seen)
		}
		for name, ctx := range seen {
			if ended := ctx.Err() != nil; ctx.Value(key{}) != "v" || ended != (name == "Elected") {
				t.Errorf("%s: value %v, %v", name, ctx.Value(key{}), ctx.Err())
			}
		}
	})
}
