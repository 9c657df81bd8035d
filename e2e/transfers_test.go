//go:build unix

package e2e_test

import (
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// Candidates that poll would take a lock that is free for a moment.
func TestManyTransfersBesidePollersGoToTheNamed(t *testing.T) {
	t.Parallel()
	const (
		most    = 1000
		pollers = 20
		during  = 30 * time.Second
	)
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		quick := []elector.Option{elector.WithLease(10 * time.Second), elector.WithHeartbeatInterval(100 * time.Millisecond), elector.WithRetryInterval(10 * time.Millisecond)}
		var named []*candidate
		for _, standby := range standbys {
			c := s.stand(t, d.open(t, len(named), s.DSN()), election, append(quick, elector.WithStandby(standby))...).run(t, nil)
			named = append(named, c)
			if len(named) == 1 {
				c.elected(t)
			} else {
				c.follows(t)
			}
		}
		pool := d.open(t, 1, s.DSN())
		pool.SetMaxOpenConns(10)
		pool.SetMaxIdleConns(10)
		var others []*candidate
		for range pollers {
			c := s.stand(t, pool, election, polling).run(t, nil)
			c.follows(t)
			others = append(others, c)
		}
		began, n := time.Now(), 0
		for leader := 0; n < most && time.Since(began) < during; n++ {
			term := termOf(t, named[leader])
			leader = (leader + 1) % len(named)
			check(t, term.TransferTo(soon(t), named[leader].CandidateID()))
		}
		for _, c := range others {
			if led := c.rec.Elected(); len(led) > 0 {
				t.Errorf("%s was elected %d times, and not named", c.CandidateID(), len(led))
			}
		}
		t.Logf("%d transfers in %v", n, time.Since(began).Round(time.Millisecond))
	})
}
