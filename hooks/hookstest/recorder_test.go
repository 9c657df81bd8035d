package hookstest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx = context.Background()
	a   = hooks.Origin{Election: "orders", Key: 42, CandidateID: "a"}
	b   = hooks.Origin{Election: "orders", Key: 42, CandidateID: "b"}
)

func elected(r *hookstest.Recorder, who hooks.Origin, token int64) {
	r.OnElected(ctx, hooks.Elected{Origin: who, Token: token})
}

func demoted(r *hookstest.Recorder, who hooks.Origin, token int64) {
	r.OnDemoted(ctx, hooks.Demoted{Origin: who, Token: token, Reason: hooks.Resigned})
}

func busy(r *hookstest.Recorder, who hooks.Origin) {
	r.OnCampaign(ctx, hooks.Campaign{Origin: who, Outcome: hooks.Busy})
}

func TestEventsAreRecordedInOrderAndByType(t *testing.T) {
	r := hookstest.NewRecorder()
	want := []any{
		hooks.Campaign{Origin: a, Outcome: hooks.Granted}, hooks.Elected{Origin: a, Token: 1},
		hooks.LeaderChanged{Origin: a, Current: "a"}, hooks.Heartbeat{Origin: a, Token: 1},
		hooks.Failure{Origin: a, Op: hooks.OpSetting}, hooks.Demoted{Origin: a, Token: 1},
	}
	r.OnCampaign(ctx, want[0].(hooks.Campaign))
	r.OnElected(ctx, want[1].(hooks.Elected))
	r.OnLeaderChanged(ctx, want[2].(hooks.LeaderChanged))
	r.OnHeartbeat(ctx, want[3].(hooks.Heartbeat))
	r.OnError(ctx, want[4].(hooks.Failure))
	r.OnDemoted(ctx, want[5].(hooks.Demoted))
	if got := r.Events(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got := []any{r.Campaigns()[0], r.Elected()[0], r.LeaderChanges()[0], r.Heartbeats()[0], r.Failures()[0], r.Demoted()[0]}
	if !slices.Equal(got, want) {
		t.Errorf("by type: got %v, want %v", got, want)
	}
	if n := len(r.Elected()) + len(r.Demoted()) + len(r.Campaigns()); n != 3 {
		t.Errorf("%d events of three types", n)
	}
}

func TestTheHooksInsideReceiveEachEventAfterItIsRecorded(t *testing.T) {
	var r *hookstest.Recorder
	var calls []string
	see := func(name string) { calls = append(calls, fmt.Sprint(name, len(r.Events()))) }
	r = hookstest.NewRecorder(nil, hooks.Funcs{
		Elected:       func(context.Context, hooks.Elected) { see("elected") },
		Demoted:       func(context.Context, hooks.Demoted) { see("demoted") },
		LeaderChanged: func(context.Context, hooks.LeaderChanged) { see("changed") },
		Error:         func(context.Context, hooks.Failure) { see("error") },
		Heartbeat:     func(context.Context, hooks.Heartbeat) { see("heartbeat") },
		Campaign:      func(context.Context, hooks.Campaign) { see("campaign") },
	})
	busy(r, a)
	elected(r, a, 1)
	r.OnLeaderChanged(ctx, hooks.LeaderChanged{Origin: a})
	r.OnHeartbeat(ctx, hooks.Heartbeat{Origin: a})
	r.OnError(ctx, hooks.Failure{Origin: a})
	demoted(r, a, 1)
	want := []string{"campaign1", "elected2", "changed3", "heartbeat4", "error5", "demoted6"}
	if !slices.Equal(calls, want) {
		t.Errorf("got %q, want %q", calls, want)
	}
}

func TestManyElectorsAndWaitersShareARecorder(t *testing.T) {
	const electors, terms = 8, 50
	r := hookstest.NewRecorder()
	var all sync.WaitGroup
	for i := range electors {
		who := hooks.Origin{Election: fmt.Sprint(i), CandidateID: fmt.Sprint(i)}
		all.Go(func() {
			for token := range int64(terms) {
				elected(r, who, token+1)
				demoted(r, who, token+1)
			}
		})
		all.Go(func() {
			got, err := hookstest.WaitN(ctx, r, terms, hookstest.Of[hooks.Demoted](who.CandidateID))
			if err != nil || len(got) != terms || got[terms-1].Token != terms {
				t.Errorf("%d events, error %v", len(got), err)
			}
		})
	}
	all.Wait()
	if n := len(r.Events()); n != 2*electors*terms {
		t.Errorf("%d events were recorded", n)
	}
	if v := r.Violations(); len(v) > 0 {
		t.Errorf("violations: %q", v)
	}
}

func TestViolationsOfTheContractAreNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		calls func(*hookstest.Recorder)
		want  []string
	}{
		"terms that follow one another": {
			func(r *hookstest.Recorder) {
				elected(r, a, 1)
				demoted(r, a, 1)
				elected(r, b, 2)
				demoted(r, b, 2)
				elected(r, a, 3)
			}, nil},
		"a late report of an older term": {
			func(r *hookstest.Recorder) { elected(r, b, 2); elected(r, a, 1); demoted(r, a, 1) }, nil},
		"the same token in another election": {
			func(r *hookstest.Recorder) { elected(r, a, 1); elected(r, hooks.Origin{Election: "mail"}, 1) }, nil},
		"elected twice": {
			func(r *hookstest.Recorder) { elected(r, a, 1); elected(r, a, 2) },
			[]string{"orders/a: Elected with token 2 during the term with token 1"}},
		"demoted first": {
			func(r *hookstest.Recorder) { demoted(r, a, 1) },
			[]string{"orders/a: Demoted with token 1 without a term"}},
		"demoted twice": {
			func(r *hookstest.Recorder) { elected(r, a, 1); demoted(r, a, 1); demoted(r, a, 1) },
			[]string{"orders/a: Demoted with token 1 without a term"}},
		"demoted from another term": {
			func(r *hookstest.Recorder) { elected(r, a, 2); demoted(r, a, 1) },
			[]string{"orders/a: Demoted with token 1 from the term with token 2"}},
		"a token that falls": {
			func(r *hookstest.Recorder) { elected(r, a, 2); demoted(r, a, 2); elected(r, a, 1) },
			[]string{"orders/a: token 1 does not rise above 2"}},
		"a token that stays": {
			func(r *hookstest.Recorder) { elected(r, a, 0); demoted(r, a, 0); elected(r, a, 0) },
			[]string{"orders/a: token 0 does not rise above 0"}},
		"a token of two candidates": {
			func(r *hookstest.Recorder) { elected(r, a, 1); demoted(r, a, 1); elected(r, b, 1) },
			[]string{"orders/b: token 1 already belonged to orders/a"}},
	} {
		r := hookstest.NewRecorder()
		tt.calls(r)
		if got := r.Violations(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// blocking returns a recorder whose OnElected runs until the returned function is called.
func blocking() (r *hookstest.Recorder, release func()) {
	gate := make(chan struct{})
	r = hookstest.NewRecorder(hooks.Funcs{Elected: func(context.Context, hooks.Elected) { <-gate }})
	return r, func() { close(gate) }
}

func TestACallWhileAnotherOfTheSameCandidateRunsIsAViolation(t *testing.T) {
	r, release := blocking()
	var running sync.WaitGroup
	running.Go(func() { elected(r, a, 1) })
	if _, err := hookstest.Wait[hooks.Elected](ctx, r, nil); err != nil {
		t.Fatal(err)
	}
	r.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpWork}) // OnError may be called at any time
	busy(r, a)
	release()
	running.Wait()
	demoted(r, a, 1)
	if got, want := r.Violations(), []string{"orders/a: OnCampaign called before OnElected returned"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCandidatesMayCallAtTheSameTime(t *testing.T) {
	r, release := blocking()
	var running sync.WaitGroup
	running.Go(func() { elected(r, a, 1) })
	if _, err := hookstest.Wait[hooks.Elected](ctx, r, nil); err != nil {
		t.Fatal(err)
	}
	busy(r, b)
	release()
	running.Wait()
	if got := r.Violations(); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

func TestACallThatPanicsHasEnded(t *testing.T) {
	r := hookstest.NewRecorder(hooks.Funcs{Elected: func(context.Context, hooks.Elected) { panic("oops") }})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not reach the elector")
			}
		}()
		elected(r, a, 1)
	}()
	r.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpHook})
	if got := r.Violations(); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

func TestWaitFindsAPastEventEvenIfItsContextIsDone(t *testing.T) {
	r := hookstest.NewRecorder()
	elected(r, a, 1)
	dead, cancel := context.WithCancel(ctx)
	cancel()
	if got, err := hookstest.Wait[hooks.Elected](dead, r, nil); err != nil || got.Token != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestWaitReturnsAsSoonAsTheEventComes(t *testing.T) {
	outside := hookstest.NewRecorder()
	synctest.Test(t, func(t *testing.T) {
		for _, r := range []*hookstest.Recorder{outside, hookstest.NewRecorder()} {
			start := time.Now()
			time.AfterFunc(time.Hour, func() { elected(r, a, 1) })
			time.AfterFunc(2*time.Hour, func() { elected(r, b, 2) })
			got, err := hookstest.Wait(ctx, r, hookstest.Of[hooks.Elected]("b"))
			if err != nil || got.Token != 2 || time.Since(start) != 2*time.Hour {
				t.Errorf("got %+v, %v after %s", got, err, time.Since(start))
			}
		}
	})
}

func TestWaitEndsWithItsContextAndListsTheEventsSoFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hookstest.NewRecorder()
		busy(r, a)
		busy(r, a)
		r.OnCampaign(ctx, hooks.Campaign{Origin: a, Outcome: hooks.Busy, Deputy: true})
		elected(r, a, 7)
		timeout, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		time.AfterFunc(time.Second, func() {
			r.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpHeartbeat, Err: errors.New("broken pipe")})
		})
		_, err := hookstest.Wait[hooks.Demoted](timeout, r, nil)
		want := "hookstest: no matching hooks.Demoted: context deadline exceeded; events so far: " +
			"Campaign(orders/a busy) ×2, Campaign(orders/a busy, deputy), Elected(orders/a token=7), Failure(orders/a heartbeat: broken pipe)"
		if !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
}

func TestAnErrorOfWaitIsShort(t *testing.T) {
	dead, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("the test is over"))
	r := hookstest.NewRecorder()
	if _, err := hookstest.Wait[hooks.Demoted](dead, r, nil); !strings.HasSuffix(err.Error(), "the test is over; events so far: nothing") {
		t.Errorf("without an event: %v", err)
	}
	for token := range int64(1000) {
		r.OnHeartbeat(ctx, hooks.Heartbeat{Origin: a, Token: token})
	}
	if _, err := hookstest.Wait[hooks.Demoted](dead, r, nil); len(err.Error()) > 1000 ||
		!strings.Contains(err.Error(), "events so far: ..., ") || !strings.HasSuffix(err.Error(), "Heartbeat(orders/a token=999)") {
		t.Errorf("with a thousand events: %v", err)
	}
}

func TestWaitNReturnsTheFirstNOrThoseThatCameAndAnError(t *testing.T) {
	r := hookstest.NewRecorder()
	elected(r, a, 1)
	elected(r, b, 2)
	elected(r, a, 3)
	got, err := hookstest.WaitN(ctx, r, 2, hookstest.Of[hooks.Elected]("a"))
	if err != nil || len(got) != 2 || got[0].Token != 1 || got[1].Token != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
	dead, cancel := context.WithCancel(ctx)
	cancel()
	got, err = hookstest.WaitN[hooks.Elected](dead, r, 4, nil)
	if len(got) != 3 || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "3 of 4 events came") {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestACursorReturnsEachEventOnceAndSkipsThoseThatDoNotMatch(t *testing.T) {
	r := hookstest.NewRecorder()
	elected(r, a, 1)
	demoted(r, a, 1)
	elected(r, a, 2)
	c := r.Cursor()
	for _, token := range []int64{1, 2} {
		if got, err := hookstest.Next[hooks.Elected](ctx, c, nil); err != nil || got.Token != token {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	dead, cancel := context.WithCancel(ctx)
	cancel()
	if got, err := hookstest.Next[hooks.Demoted](dead, c, nil); err == nil {
		t.Errorf("the cursor went back to %+v", got)
	}
}

func TestACursorStaysWhereItWasWhenNothingMatches(t *testing.T) {
	r := hookstest.NewRecorder()
	elected(r, a, 1)
	c := r.Cursor()
	dead, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := hookstest.Next[hooks.Demoted](dead, c, nil); err == nil {
		t.Error("got an event that was not reported")
	}
	if _, err := hookstest.Next[hooks.Elected](ctx, c, nil); err != nil {
		t.Error(err)
	}
}

func TestSkipSeenSkipsPastEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hookstest.NewRecorder()
		elected(r, a, 1)
		c := r.Cursor()
		c.SkipSeen()
		time.AfterFunc(time.Hour, func() { elected(r, b, 2) })
		if got, err := hookstest.Next[hooks.Elected](ctx, c, nil); err != nil || got.Token != 2 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestEveryTypeOfEventCanBeWaitedForByCandidate(t *testing.T) {
	r := hookstest.NewRecorder()
	r.OnElected(ctx, hooks.Elected{Origin: a})
	r.OnDemoted(ctx, hooks.Demoted{Origin: a})
	r.OnLeaderChanged(ctx, hooks.LeaderChanged{Origin: a})
	r.OnError(ctx, hooks.Failure{Origin: a})
	r.OnHeartbeat(ctx, hooks.Heartbeat{Origin: a})
	r.OnCampaign(ctx, hooks.Campaign{Origin: a})
	dead, cancel := context.WithCancel(ctx)
	cancel()
	_, err1 := hookstest.Wait(dead, r, hookstest.Of[hooks.Elected]("a"))
	_, err2 := hookstest.Wait(dead, r, hookstest.Of[hooks.Demoted]("a"))
	_, err3 := hookstest.Wait(dead, r, hookstest.Of[hooks.LeaderChanged]("a"))
	_, err4 := hookstest.Wait(dead, r, hookstest.Of[hooks.Failure]("a"))
	_, err5 := hookstest.Wait(dead, r, hookstest.Of[hooks.Heartbeat]("a"))
	_, err6 := hookstest.Wait(dead, r, hookstest.Of[hooks.Campaign]("a"))
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		t.Error(err)
	}
	_, err := hookstest.Wait(dead, r, hookstest.Of[hooks.Campaign]("b"))
	if want := "Elected Demoted LeaderChanged Failure Heartbeat Campaign"; err == nil || !inOrder(err.Error(), strings.Fields(want)) {
		t.Errorf("want %s in %v", want, err)
	}
}

func inOrder(text string, words []string) bool {
	for _, word := range words {
		_, after, found := strings.Cut(text, word+"(")
		if !found {
			return false
		}
		text = after
	}
	return true
}
