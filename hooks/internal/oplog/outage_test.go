package oplog_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/internal/oplog"
)

const wentAway = "warn attempt failed op=campaign error=connection refused failed_attempts=1"

func check(t *testing.T, l *log, want ...string) {
	t.Helper()
	if got := l.from(oplog.Info); !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestAnOutageIsLoggedOnceWhenItBeginsAndOnceWhenItEnds(t *testing.T) {
	for outcome, back := range map[hooks.Outcome]string{
		hooks.Busy:    "info attempts succeed again after=1m30s failed_attempts=90",
		hooks.Granted: "info elected token=0 outage=1m30s failed_attempts=90 campaigned=0s",
	} {
		var l log
		h := oplog.New(l.write)
		for i := range 90 {
			attempt(h, a, i+1, hooks.Failed, time.Duration(i)*time.Second)
		}
		attempt(h, a, 91, outcome, 90*time.Second)
		if outcome == hooks.Granted {
			h.OnElected(ctx, hooks.Elected{Origin: a, At: start.Add(90 * time.Second)})
		}
		attempt(h, a, 92, outcome, 91*time.Second)
		check(t, &l, wentAway, back)
	}
}

func TestASecondOutageIsLoggedAgain(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	for i := range 2 {
		attempt(h, a, 1, hooks.Failed, time.Duration(i)*time.Minute)
		attempt(h, a, 2, hooks.Busy, time.Duration(i)*time.Minute+2*time.Second)
	}
	back := "info attempts succeed again after=2s failed_attempts=1"
	check(t, &l, wentAway, back, wentAway, back)
}

func TestAnOutageGoesOnFromOneCampaignToTheNext(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	for i := range 5 { // a loop of TryCampaign: each is a first attempt
		attempt(h, a, 1, hooks.Failed, time.Duration(i)*time.Second)
	}
	attempt(h, a, 1, hooks.Busy, 5*time.Second)
	check(t, &l, wentAway, "info attempts succeed again after=5s failed_attempts=5")
}

// Quick attempts are reported to OnCampaign alone, as metrics count them.
func TestTheNumberOfFailedAttemptsIsThatOfTheMetric(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	attempt(h, a, 1, hooks.Failed, 0)
	for i := range 3 {
		h.OnCampaign(ctx, hooks.Campaign{Origin: a, Attempt: i + 2, Outcome: hooks.Failed, At: start})
	}
	attempt(h, a, 5, hooks.Busy, time.Second)
	check(t, &l, wentAway, "info attempts succeed again after=1s failed_attempts=4")
}

// It is looked for once a minute, while attempts go on.
func TestWhoKeepsTheLockFromAllIsLoggedOnceUntilTheLeaderChanges(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	blocked := hooks.Failure{Origin: a, Op: hooks.OpLeader, Err: errRefused, At: start}
	for range 2 {
		for n := range 3 {
			h.OnError(ctx, blocked)
			attempt(h, a, n+1, hooks.Busy, time.Minute)
		}
		h.OnLeaderChanged(ctx, hooks.LeaderChanged{Origin: a, Current: "web-2", PID: 1})
	}
	line, changed := "error nobody can be elected op=leader error=connection refused", "info leader changed leader=web-2 pid=1"
	check(t, &l, line, changed, line, changed)
}

func TestTheOutagesOfCandidatesAreSeparate(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	attempt(h, a, 1, hooks.Failed, 0)
	attempt(h, b, 1, hooks.Busy, time.Second)
	attempt(h, b, 2, hooks.Failed, 2*time.Second)
	attempt(h, a, 2, hooks.Busy, 3*time.Second)
	check(t, &l, wentAway, wentAway, "info attempts succeed again after=3s failed_attempts=1")
}

func TestAPermanentFailureIsAnErrorAndEndsTheOutage(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	attempt(h, a, 1, hooks.Failed, 0)
	h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpCampaign, Err: errRefused, At: start, Attempt: 2, Permanent: true})
	h.OnCampaign(ctx, hooks.Campaign{Origin: a, Attempt: 2, Outcome: hooks.Failed, At: start})
	attempt(h, a, 1, hooks.Busy, time.Hour)
	check(t, &l, wentAway, "error gave up op=campaign error=connection refused failed_attempts=2")
}

func TestAFailureOutsideAnAttemptBeginsNoOutage(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpHeartbeat, Err: errRefused, At: start})
	attempt(h, a, 1, hooks.Busy, time.Second)
	check(t, &l, "warn heartbeat failed op=heartbeat error=connection refused")
}

func TestOneHookServesManyElectorsAtOnce(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	var electors sync.WaitGroup
	for i := range 8 {
		who := hooks.Origin{Election: "orders", CandidateID: fmt.Sprint(i)}
		electors.Go(func() {
			for n := range 50 {
				attempt(h, who, n+1, hooks.Failed, 0)
			}
			attempt(h, who, 51, hooks.Busy, time.Second)
		})
	}
	electors.Wait()
	count := map[string]int{}
	for _, line := range l.from(oplog.Info) {
		count[line]++
	}
	if len(count) != 2 || count[wentAway] != 8 || count["info attempts succeed again after=1s failed_attempts=50"] != 8 {
		t.Errorf("got %v", count)
	}
}
