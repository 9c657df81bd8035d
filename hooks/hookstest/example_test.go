package hookstest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// elect stands in for an elector that leads and loses its session.
func elect(hook *hookstest.Recorder) {
	ctx, us := context.Background(), hooks.Origin{Election: "orders", Key: 42, CandidateID: "web-1"}
	hook.OnCampaign(ctx, hooks.Campaign{Origin: us, Attempt: 1, Outcome: hooks.Granted})
	hook.OnElected(ctx, hooks.Elected{Origin: us, Token: 745})
	hook.OnDemoted(ctx, hooks.Demoted{Origin: us, Token: 745, Reason: hooks.SessionLost})
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	rec := hookstest.NewRecorder()
	done := make(chan struct{})
	go func() { defer close(done); elect(rec) }()

	elected, err := hookstest.Wait[hooks.Elected](ctx, rec, nil)
	fmt.Println("elected with token", elected.Token, err)
	demoted, err := hookstest.Wait(ctx, rec, func(e hooks.Demoted) bool { return e.Reason == hooks.SessionLost })
	fmt.Println("demoted from token", demoted.Token, err)

	<-done
	fmt.Println(len(rec.Campaigns()), "attempt,", len(rec.Violations()), "violations")
	// Output:
	// elected with token 745 <nil>
	// demoted from token 745 <nil>
	// 1 attempt, 0 violations
}
