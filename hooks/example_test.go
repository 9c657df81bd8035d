package hooks_test

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// pager implements only DemotedHook.
type pager struct{}

func (pager) OnDemoted(_ context.Context, e hooks.Demoted) {
	if e.Reason != hooks.Resigned && e.Reason != hooks.Shutdown {
		fmt.Printf("page: %s lost %s after %s: %s\n", e.CandidateID, e.Election, e.Held, e.Reason)
	}
}

func ExampleJoin() {
	hook := hooks.Join(
		hooks.Funcs{Demoted: func(_ context.Context, e hooks.Demoted) { fmt.Println("demoted, token", e.Token) }},
		pager{},
	)
	// elector.New(pool, "orders", elector.WithHooks(hook)); the elector then calls:
	hook.(hooks.DemotedHook).OnDemoted(context.Background(), hooks.Demoted{
		Origin: hooks.Origin{Election: "orders", CandidateID: "web-1"},
		Token:  745, Reason: hooks.LeaseExpired, Held: time.Hour,
	})
	// Output:
	// demoted, token 745
	// page: web-1 lost orders after 1h0m0s: lease_expired
}
