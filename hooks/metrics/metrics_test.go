package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const validity = 7 * time.Second

var web1 = hooks.Origin{Election: "orders", Key: 42, CandidateID: "web-1"}

// elect reports a new term to h, and returns the cancel function of its context.
func elect(h *metrics.Hook, who hooks.Origin, token int64) context.CancelFunc {
	ctx, cancel := context.WithCancel(context.Background())
	h.OnElected(ctx, hooks.Elected{Origin: who, Token: token, At: time.Now(), Deadline: time.Now().Add(validity)})
	return cancel
}

// beat reports a heartbeat to h.
func beat(h *metrics.Hook, who hooks.Origin, token int64) {
	h.OnHeartbeat(context.Background(), hooks.Heartbeat{Origin: who, Token: token, Deadline: time.Now().Add(validity)})
}

// expectLeft fails the test unless h has seen one election, with that validity left.
func expectLeft(t *testing.T, h *metrics.Hook, left time.Duration) {
	t.Helper()
	all := h.Standings()
	if len(all) != 1 || all[0].Election != "orders" || all[0].Left != left || all[0].Leading != (left > 0) || all[0].Since.IsZero() != (left == 0) {
		t.Errorf("got %+v, want %v left", all, left)
	}
}

func TestTheStandingEndsWithTheValidityWithoutAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := metrics.New(nil)
		defer elect(h, web1, 1)()
		expectLeft(t, h, validity)
		time.Sleep(2 * time.Second)
		expectLeft(t, h, validity-2*time.Second)
		beat(h, web1, 1)
		expectLeft(t, h, validity)
		time.Sleep(validity - 1)
		expectLeft(t, h, 1)
		time.Sleep(time.Nanosecond)
		expectLeft(t, h, 0)
	})
}

func TestTheStandingEndsWithTheTermsContextBeforeTheWorkHasReturned(t *testing.T) {
	h := metrics.New(nil)
	elect(h, web1, 1)()
	expectLeft(t, h, 0)
}

func TestALateHeartbeatEventDoesNotRenewAnEndedTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := metrics.New(nil)
		elect(h, web1, 1)()
		h.OnDemoted(t.Context(), hooks.Demoted{Origin: web1, Token: 1})
		beat(h, web1, 1)
		expectLeft(t, h, 0)
		defer elect(h, web1, 2)()
		time.Sleep(time.Second)
		beat(h, web1, 1)
		expectLeft(t, h, validity-time.Second)
	})
}

func TestAnElectionIsKnownFromItsFirstAttempt(t *testing.T) {
	h := metrics.New(nil)
	if all := h.Standings(); len(all) != 0 {
		t.Errorf("got %+v before any event", all)
	}
	h.OnCampaign(t.Context(), hooks.Campaign{Origin: web1, Outcome: hooks.Busy})
	expectLeft(t, h, 0)
	h = metrics.New(nil)
	h.OnError(t.Context(), hooks.Failure{Origin: web1, Op: hooks.OpCampaign})
	expectLeft(t, h, 0)
}

// Two candidates of a process share the hook.
func TestTheStandingSaysWhoIsDeputy(t *testing.T) {
	h, web2 := metrics.New(nil), hooks.Origin{Election: "orders", Key: 42, CandidateID: "web-2"}
	for i, step := range []struct {
		hooks.Campaign
		deputy, polls bool
	}{
		{hooks.Campaign{Origin: web2, Outcome: hooks.Busy, Polls: true}, false, true},
		{hooks.Campaign{Origin: web1, Outcome: hooks.Busy}, false, false},
		{hooks.Campaign{Origin: web1, Outcome: hooks.Busy, Deputy: true}, true, false},
		{hooks.Campaign{Origin: web2, Outcome: hooks.Busy, Polls: true}, true, false},
		{hooks.Campaign{Origin: web1, Outcome: hooks.Busy, Deputy: true}, true, false},
		{hooks.Campaign{Origin: web1, Outcome: hooks.Granted}, false, false},
		{hooks.Campaign{Origin: web1, Outcome: hooks.Busy, Deputy: true}, true, false},
		{hooks.Campaign{Origin: web1, Outcome: hooks.Failed}, false, false},
	} {
		h.OnCampaign(t.Context(), step.Campaign)
		if all := h.Standings(); len(all) != 1 || all[0].Deputy != step.deputy || all[0].Polls != step.polls {
			t.Errorf("step %d: %+v, want deputy %t, polls %t", i+1, all, step.deputy, step.polls)
		}
	}
}

func TestAFailureOfASharedConnectionBelongsToNoElection(t *testing.T) {
	sink := &recorder{}
	h := metrics.New(sink)
	h.OnError(t.Context(), hooks.Failure{Origin: hooks.Origin{CandidateID: "web-1"}, Op: hooks.OpCall})
	if all := h.Standings(); len(all) != 0 || len(sink.lines) != 1 {
		t.Errorf("got %+v, and the sink received %q", all, sink.lines)
	}
}

func TestOfTwoCandidatesOfAProcessTheLeaderCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := metrics.New(nil)
		web2 := hooks.Origin{Election: "orders", Key: 42, CandidateID: "web-2"}
		elect(h, web1, 1)() // its work has not returned yet
		defer elect(h, web2, 2)()
		expectLeft(t, h, validity)
		h.OnDemoted(t.Context(), hooks.Demoted{Origin: web1, Token: 1})
		expectLeft(t, h, validity)
	})
}

// Two candidates of a process share the hook.
func TestAnElectionIsForgottenWhenItsLastCandidateIsClosed(t *testing.T) {
	h, web2 := metrics.New(nil), hooks.Origin{Election: "orders", Key: 42, CandidateID: "web-2"}
	h.OnError(t.Context(), hooks.Failure{Origin: web1, Op: hooks.OpHealth})
	h.OnCampaign(t.Context(), hooks.Campaign{Origin: web2, Outcome: hooks.Busy, Deputy: true})
	h.OnClosed(t.Context(), hooks.Closed{Origin: web2})
	expectLeft(t, h, 0)
	if all := h.Standings(); all[0].Deputy {
		t.Error("the deputy is closed")
	}
	elect(h, web1, 1)()
	h.OnDemoted(t.Context(), hooks.Demoted{Origin: web1, Token: 1, Reason: hooks.LeadFailed})
	expectLeft(t, h, 0) // its Run may have ended
	h.OnClosed(t.Context(), hooks.Closed{Origin: web1})
	h.OnClosed(t.Context(), hooks.Closed{Origin: hooks.Origin{Election: "idle"}})
	if all := h.Standings(); len(all) != 0 {
		t.Errorf("got %+v after all candidates were closed", all)
	}
	h.OnCampaign(t.Context(), hooks.Campaign{Origin: web1, Outcome: hooks.Busy})
	expectLeft(t, h, 0)
}

// A process may make an elector anew, and close the one before it later.
func TestACandidateThatReplacesAnotherOfItsNameIsNotClosedWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := metrics.New(nil)
		elect(h, web1, 1)()
		defer elect(h, web1, 2)()
		h.OnDemoted(t.Context(), hooks.Demoted{Origin: web1, Token: 1, Reason: hooks.SessionLost})
		expectLeft(t, h, validity)
		h.OnClosed(t.Context(), hooks.Closed{Origin: web1})
		expectLeft(t, h, validity)
	})
}

func TestAHookThatPanicsInOnClosedMakesNoCandidate(t *testing.T) {
	h := metrics.New(nil)
	h.OnCampaign(t.Context(), hooks.Campaign{Origin: web1, Outcome: hooks.Busy})
	h.OnClosed(t.Context(), hooks.Closed{Origin: web1})
	h.OnError(t.Context(), hooks.Failure{Origin: web1, Op: hooks.OpHook})
	if all := h.Standings(); len(all) != 0 {
		t.Errorf("got %+v after all candidates were closed", all)
	}
}

// recorder is a sink that records its calls.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (s *recorder) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *recorder) TermBegan(_ context.Context, election string) { s.add("%s began", election) }
func (s *recorder) TermEnded(_ context.Context, election string, reason hooks.Reason, held time.Duration) {
	s.add("%s ended %s %v", election, reason, held)
}
func (s *recorder) HeartbeatAnswered(_ context.Context, election string, took time.Duration) {
	s.add("%s heartbeat %v", election, took)
}
func (s *recorder) AttemptMade(_ context.Context, election string, outcome hooks.Outcome, took time.Duration) {
	s.add("%s attempt %s %v", election, outcome, took)
}
func (s *recorder) FailureSeen(_ context.Context, election string, op hooks.Op) {
	s.add("%s failure %s", election, op)
}

func TestTheSinkIsToldOfEachEvent(t *testing.T) {
	sink := &recorder{}
	h, ctx := metrics.New(sink), t.Context()
	h.OnError(ctx, hooks.Failure{Origin: web1, Op: hooks.OpCampaign, Err: errors.New("refused")})
	h.OnCampaign(ctx, hooks.Campaign{Origin: web1, Outcome: hooks.Granted, Took: 3})
	h.OnElected(ctx, hooks.Elected{Origin: web1, Token: 1})
	h.OnHeartbeat(ctx, hooks.Heartbeat{Origin: web1, Token: 1, Took: 5})
	h.OnDemoted(ctx, hooks.Demoted{Origin: web1, Token: 1, Reason: hooks.SessionLost, Held: 7})
	want := []string{"orders failure campaign", "orders attempt granted 3ns", "orders began", "orders heartbeat 5ns", "orders ended session_lost 7ns"}
	if !slices.Equal(sink.lines, want) {
		t.Errorf("got  %q\nwant %q", sink.lines, want)
	}
}

// A term's context ends with the term, but a sink may still send.
func TestTheSinksContextOutlivesTheTerm(t *testing.T) {
	type key struct{}
	sink := &began{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	cancel()
	metrics.New(sink).OnElected(ctx, hooks.Elected{Origin: web1})
	if sink.ctx.Err() != nil || sink.ctx.Value(key{}) != "value" {
		t.Errorf("the context ended with the term, or lost its values: %v", sink.ctx)
	}
}

type began struct {
	recorder
	ctx context.Context
}

func (s *began) TermBegan(ctx context.Context, _ string) { s.ctx = ctx }

func TestOneHookServesAThousandElectionsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in virtual time no term ends on a slow machine
		sink := &recorder{}
		h := metrics.New(sink)
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				who := hooks.Origin{Election: fmt.Sprint("shard-", i), CandidateID: "web-1"}
				elect(h, who, 1)
				beat(h, who, 1)
				if i%100 == 0 {
					h.Standings()
				}
				if i%2 == 0 {
					h.OnDemoted(t.Context(), hooks.Demoted{Origin: who, Token: 1})
				}
			})
		}
		all.Wait()
		leading := 0
		for _, s := range h.Standings() {
			if s.Leading {
				leading++
			}
		}
		if n := len(h.Standings()); n != 1000 || leading != 500 {
			t.Errorf("%d elections, %d led; want 1000 and 500", n, leading)
		}
		if n := len(sink.lines); n != 2500 {
			t.Errorf("the sink received %d events, want 2500", n)
		}
	})
}

// The wall clock can be set, and the monotonic clock may stop while the machine sleeps.
func TestTheClockOnWhichMoreTimeHasPassedCounts(t *testing.T) {
	now := time.Now()
	for name, deadline := range map[string]time.Time{
		"the machine has slept":       moved(t, now.Add(-time.Minute), time.Hour), // only the wall clock is past the deadline
		"the wall clock was set back": moved(t, now.Add(time.Hour), -2*time.Hour), // only the monotonic clock is past it
	} {
		h := metrics.New(nil)
		h.OnElected(context.Background(), hooks.Elected{Origin: web1, Token: 1, At: now, Deadline: deadline})
		if all := h.Standings(); all[0].Leading || all[0].Left != 0 {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

// moved returns at with a later monotonic reading. Package time has no function for that.
func moved(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	layout := (*struct {
		wall uint64
		mono int64
	})(unsafe.Pointer(&at))
	layout.mono += int64(d)
	now := time.Now()
	if difference := at.Sub(now) - at.Round(0).Sub(now.Round(0)); difference.Round(time.Minute) != d {
		t.Fatalf("the layout of time.Time has changed: moved by %v, not %v", difference, d)
	}
	return at
}
