package electortest_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// An unhealthy candidate still sees who leads, and that nobody leads.
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

// An occasional end of the watcher's connection is not reported: it watches again.
func TestAWatcherThatIsEndedNowAndThenIsNotReported(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one", elector.WithWatch())
		b.leads(one)
		term, _ := one.Term()
		for range 5 {
			time.Sleep(5 * time.Second)
			ended := 0
			for _, lock := range b.Locks() {
				if !lock.Granted {
					b.Terminate(lock.PID)
					ended++
				}
			}
			if ended != 1 {
				b.Errorf("%d connections waited", ended)
			}
		}
		time.Sleep(5 * time.Second)
		if failures := one.rec.Failures(); len(failures) > 0 || !term.Valid() {
			b.Errorf("reported %+v; valid: %t", failures, term.Valid())
		}
	})
}

// A resigning leader grants its watcher the lock: a cancel would leave a line in the server's
// log.
func TestAWatcherIsNotCancelledByAResignation(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", elector.WithWatch())
		term, err := one.Campaign(context.Background())
		b.wraps(err)
		time.Sleep(time.Second)
		ended := make(chan error, 10)
		b.Trace(func(event electortest.Event) {
			if event.What == "WaitLock" && event.Done {
				ended <- event.Err
			}
		})
		b.wraps(term.Resign(context.Background()))
		b.wraps(<-ended)
		b.Trace(nil)
	})
}
