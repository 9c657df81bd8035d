package hcloghooks_test

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pgelector/pgelector/hooks"
	hcloghooks "github.com/pgelector/pgelector/hooks/hclog"
)

func ExampleNew() {
	logger := hclog.New(&hclog.LoggerOptions{
		Name:        "leader",
		Output:      os.Stdout,
		DisableTime: true, // so that the output is the same every time
	})
	hook := hcloghooks.New(logger) // elector.New(pool, "orders", elector.WithHooks(hook))

	// What an elector reports in an outage:
	ctx, start := context.Background(), time.Now()
	us := hooks.Origin{Election: "orders", Key: 42, CandidateID: "web-1"}
	hook.OnElected(ctx, hooks.Elected{Origin: us, Token: 745, Campaigned: 3 * time.Second, Previous: "web-3", Leaderless: 90 * time.Millisecond})
	lost := errors.New("session lost: server closed the connection")
	hook.OnDemoted(ctx, hooks.Demoted{Origin: us, Token: 745, Reason: hooks.SessionLost, Err: lost, Held: time.Hour})
	for i := range 60 {
		hook.OnError(ctx, hooks.Failure{
			Origin: us, Op: hooks.OpCampaign, Err: errors.New("connection refused"),
			Attempt: i + 1, At: start.Add(time.Duration(i) * time.Second),
		})
		hook.OnCampaign(ctx, hooks.Campaign{Origin: us, Attempt: i + 1, Outcome: hooks.Failed})
	}
	hook.OnCampaign(ctx, hooks.Campaign{Origin: us, Attempt: 61, Outcome: hooks.Busy, At: start.Add(time.Minute)})
	hook.OnLeaderChanged(ctx, hooks.LeaderChanged{Origin: us, Previous: "web-1", Current: "web-2", PID: 4711})

	// Output:
	// [INFO]  leader: elected: election=orders candidate=web-1 key=42 token=745 previous=web-3 leaderless=90ms campaigned=3s
	// [WARN]  leader: demoted: election=orders candidate=web-1 key=42 token=745 reason=session_lost held=1h0m0s error="session lost: server closed the connection"
	// [INFO]  leader: attempts succeed again: election=orders candidate=web-1 key=42 after=1m0s failed_attempts=60
	// [INFO]  leader: leader changed: election=orders candidate=web-1 key=42 leader=web-2 pid=4711
}
