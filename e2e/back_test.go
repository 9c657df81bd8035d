//go:build unix

package e2e_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// The route to the primary is away for a while, and then it leads to a primary again.
// How soon the election has a leader is counted from then on.

// The bounds, with a busy machine's share of them.
const (
	backMedian = 250 * time.Millisecond
	backWorst  = time.Second
)

// An outage takes the route away, and returns when it leads to a primary again.
type outage func(t *testing.T) (back time.Time)

// cutOff breaks every connection, and refuses new ones for a while.
func (l link) cutOff(*testing.T) time.Time {
	l.proxy.LeadTo(nil)
	l.proxy.Reset()
	time.Sleep(away())
	l.proxy.LeadTo(l.Cluster)
	return time.Now()
}

// failsOver kills the primary, promotes a standby, and has the route lead there.
func (l *link) failsOver(t *testing.T) time.Time {
	standby, err := l.Cluster.AddStandby(t.Context())
	check(t, err)
	check(t, l.Cluster.Kill())
	time.Sleep(away())
	check(t, standby.Promote(soon(t)))
	l.server = on(t, standby)
	l.proxy.LeadTo(standby)
	return time.Now()
}

// away is longer than a heartbeat interval, so that the leader knows.
func away() time.Duration { return 2*heartbeat + rand.N(time.Second) }

// back measures how long an election is without a leader once the route is back, and
// what an attempt takes.
func (c *candidate) back(t *testing.T, o outage) (took, attempt time.Duration) {
	t.Helper()
	after := c.after()
	began := time.Now()
	back := o(t)
	elected := nextElected(t, after)
	var all []hooks.Campaign
	for _, one := range c.rec.Campaigns() {
		if one.At.After(began) && !one.At.After(elected.At.Add(time.Millisecond)) {
			all = append(all, one)
		}
	}
	for i := range all {
		if i+4 < len(all) && start(all[i+4]).Sub(start(all[i])) < time.Second {
			t.Errorf("five attempts began within %v", start(all[i+4]).Sub(start(all[i])))
		}
	}
	return elected.At.Sub(back), all[len(all)-1].Took
}

func start(c hooks.Campaign) time.Time { return c.At.Add(-c.Took) }

// measure has so many outages, and checks the bounds, beside what an attempt takes. A
// machine that is busy gets three tries.
func (c *candidate) measure(t *testing.T, n int, o outage) {
	t.Helper()
	for try := 1; ; try++ {
		var all, attempts []time.Duration
		for range n {
			took, attempt := c.back(t, o)
			all, attempts = append(all, took), append(attempts, attempt)
		}
		slices.Sort(all)
		slices.Sort(attempts)
		t.Logf("back after %v, of which the attempt that is granted takes %v", all, attempts)
		median, worst := all[n/2]-attempts[n/2], all[n-1]-attempts[n-1]
		if median <= backMedian && worst <= backWorst {
			return
		}
		if try == 3 {
			t.Fatalf("without an attempt, the median is %v, and the worst %v", median, worst)
		}
	}
}

func TestALeaderIsBackSoonAfterItsRouteIs(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		l := behindAProxy(t)
		// The waits of WithBackoff alone would be 2 s, 4 s, …
		c := l.stand(t, d, 0, l.election(t), elector.WithRetryInterval(2*time.Second)).run(t, nil)
		c.elected(t)
		n := 0
		c.measure(t, 11, func(t *testing.T) time.Time {
			if n++; n%4 == 0 {
				return l.failsOver(t)
			}
			return l.cutOff(t)
		})
	})
}
