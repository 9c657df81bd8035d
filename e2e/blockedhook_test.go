//go:build unix

package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// The events of heartbeats wait for the hook; the term does not.
func TestALeaderWhoseHookBlocksIsShownAsLeadingAndSaysWhyItDoesNotStop(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	g, released := newTarget(t), make(chan struct{})
	blocks := hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) { <-released }}
	c := s.stand(t, pgx.open(t, 0, s.DSN()), s.election(t), briefly, elector.WithHooks(g.hook, blocks)).run(t, nil)
	defer close(released)
	first := c.elected(t)
	wait(t, c, func(f hooks.Failure) bool { return f.Op == hooks.OpHook })
	eventually(t, "the first validity is over", func() bool { return time.Now().After(first.Deadline) })
	if scrape := g.scrape(t); scrape["pgelector_leader"] != 1 || scrape["pgelector_validity_remaining_seconds"] <= 0 || !c.IsLeader() {
		t.Errorf("it leads: %t, and shows %v", c.IsLeader(), scrape)
	}
	c.stop()
	wait(t, c, func(f hooks.Failure) bool {
		return f.Op == hooks.OpHook && strings.Contains(f.Err.Error(), "was told to stop, and waits for OnHeartbeat of hooks.Funcs")
	})
}
