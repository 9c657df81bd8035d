package elector_test

import (
	"cmp"
	"context"
	"fmt"

	"github.com/pgelector/pgelector/hooks"
)

// A metricsSink is what users of cronlite have.
type metricsSink interface {
	LeaderStatusChanged(isLeader bool)
	LeaderAcquired()
	LeaderLost(reason string) // shutdown, conn_lost, error
}

func sinkHook(sink metricsSink) hooks.Hook {
	why := map[hooks.Reason]string{hooks.SessionLost: "conn_lost", hooks.LeaseExpired: "conn_lost", hooks.Unhealthy: "error", hooks.LeadFailed: "error"}
	return hooks.Funcs{
		Elected: func(context.Context, hooks.Elected) { sink.LeaderStatusChanged(true); sink.LeaderAcquired() },
		Demoted: func(_ context.Context, d hooks.Demoted) {
			sink.LeaderStatusChanged(false)
			sink.LeaderLost(cmp.Or(why[d.Reason], "shutdown"))
		},
	}
}

type printingSink struct{}

func (printingSink) LeaderStatusChanged(isLeader bool) { fmt.Println("leader:", isLeader) }
func (printingSink) LeaderAcquired()                   { fmt.Println("acquired") }
func (printingSink) LeaderLost(reason string)          { fmt.Println("lost:", reason) }

// A sink of another library learns of each term.
func Example_sinkOfAnotherLibrary() {
	hook := sinkHook(printingSink{})
	hook.(hooks.ElectedHook).OnElected(context.Background(), hooks.Elected{})
	hook.(hooks.DemotedHook).OnDemoted(context.Background(), hooks.Demoted{Reason: hooks.LeaseExpired})
	hook.(hooks.DemotedHook).OnDemoted(context.Background(), hooks.Demoted{Reason: hooks.Resigned})
	// Output:
	// leader: true
	// acquired
	// leader: false
	// lost: conn_lost
	// leader: false
	// lost: shutdown
}
