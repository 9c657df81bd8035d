package metrics_test

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/metrics"
)

// printer stands in for the client of a monitoring system.
type printer struct{}

func (printer) TermBegan(_ context.Context, election string) { fmt.Println("began", election) }

func (printer) TermEnded(_ context.Context, election string, reason hooks.Reason, held time.Duration) {
	fmt.Println("ended", election, reason, held)
}

func (printer) HeartbeatAnswered(_ context.Context, election string, took time.Duration) {
	fmt.Println("heartbeat", election, took)
}

func (printer) AttemptMade(_ context.Context, election string, outcome hooks.Outcome, _ time.Duration) {
	fmt.Println("attempt", election, outcome)
}

func (printer) FailureSeen(_ context.Context, election string, op hooks.Op) {
	fmt.Println("failure", election, op)
}

func ExampleNew() {
	hook := metrics.New(printer{}) // elector.New(pool, "orders", elector.WithHooks(hook))

	// The elector then calls:
	us := hooks.Origin{Election: "orders", CandidateID: "web-1"}
	term, end := context.WithCancel(context.Background())
	hook.OnCampaign(term, hooks.Campaign{Origin: us, Outcome: hooks.Granted})
	hook.OnElected(term, hooks.Elected{Origin: us, Token: 745, At: time.Now(), Deadline: time.Now().Add(7 * time.Minute)})
	hook.OnHeartbeat(term, hooks.Heartbeat{Origin: us, Token: 745, Took: time.Millisecond, Deadline: time.Now().Add(7 * time.Minute)})

	// Compute a gauge when it is sent:
	for _, s := range hook.Standings() {
		fmt.Println(s.Election, "leading:", s.Leading, "valid for", s.Left.Round(time.Minute))
	}
	end()
	hook.OnDemoted(term, hooks.Demoted{Origin: us, Token: 745, Reason: hooks.Resigned, Held: time.Hour})
	// Output:
	// attempt orders granted
	// began orders
	// heartbeat orders 1ms
	// orders leading: true valid for 7m0s
	// ended orders resigned 1h0m0s
}
