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

// The bounds.
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

// back measures how long an election is without a leader once the route is back, and for
// how long of it nothing is tried, before each attempt.
func (c *candidate) back(t *testing.T, o outage) (took, idle time.Duration) {
	t.Helper()
	after := c.after()
	began := time.Now()
	back := o(t)
	elected := nextElected(t, after)
	var all []hooks.Campaign
	for _, one := range c.rec.Campaigns() {
		if one.At.After(began) && !start(one).After(elected.At) {
			all = append(all, one)
		}
	}
	took = elected.At.Sub(back)
	idle, since := took, 0
	for i, one := range all {
		if start(one).After(back) {
			since++
		}
		if busy := min(one.At.Sub(back), one.Took); busy > 0 {
			idle -= busy
		}
		if i+4 < len(all) && start(all[i+4]).Sub(start(one)) < time.Second {
			t.Errorf("five attempts began within %v", start(all[i+4]).Sub(start(one)))
		}
	}
	return took, idle / time.Duration(max(since, 1))
}

func start(c hooks.Campaign) time.Time { return c.At.Add(-c.Took) }

// measure has so many outages, and checks the bounds of the time in which nothing is
// tried: on a busy machine an attempt takes its time. It gets three tries.
func (c *candidate) measure(t *testing.T, n int, o outage) {
	t.Helper()
	for try := 1; ; try++ {
		var all, idle []time.Duration
		for range n {
			one, of := c.back(t, o)
			all, idle = append(all, one), append(idle, of)
		}
		slices.Sort(all)
		slices.Sort(idle)
		t.Logf("back after %v, of which nothing is tried for %v", all, idle)
		if idle[n/2] <= backMedian && idle[n-1] <= backWorst {
			return
		}
		if try == 3 {
			t.Fatalf("the median is %v, and the worst %v", idle[n/2], idle[n-1])
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
