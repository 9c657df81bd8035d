package electortest_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A candidate that may not campaign still sees who leads, and that nobody does.
func TestAnUnhealthyCandidateSeesWhoLeads(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		ill := b.run("ill", elector.WithHealth(func(context.Context) float64 { return 0 }, elector.HealthPolicy{}))
		time.Sleep(3 * time.Second)
		leader.stop()
		time.Sleep(3 * time.Second)
		changes := ill.rec.LeaderChanges()
		if len(changes) != 2 || changes[0].Current != "leader" || changes[1].Previous != "leader" || changes[1].Current != "" {
			b.Errorf("saw %+v", changes)
		}
		if n := len(ill.rec.Campaigns()); n != 0 {
			b.Errorf("%d attempts", n)
		}
	})
}
