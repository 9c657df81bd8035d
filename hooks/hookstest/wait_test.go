package hookstest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

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
