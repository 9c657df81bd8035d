package hookstest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
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
