//go:build unix

package e2e_test

import (
	"flag"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// transfers is how many transfers the test makes. More cost the other tests their processor:
// go -C e2e test . -run TestManyTransfers -transfers 1000 -timeout 1h
var transfers = flag.Int("transfers", 30, "how many transfers TestManyTransfersBesidePollersGoToTheNamed makes")

// Candidates that poll would take a lock that is free for a moment.
func TestManyTransfersBesidePollersGoToTheNamed(t *testing.T) {
	t.Parallel()
	const pollers = 20
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
		for n := range *transfers {
			term, leader := termOf(t, named[n%len(named)]), (n+1)%len(named)
			check(t, term.TransferTo(soon(t), named[leader].CandidateID()))
		}
		for _, c := range others {
			if led := c.rec.Elected(); len(led) > 0 {
				t.Errorf("%s was elected %d times, and not named", c.CandidateID(), len(led))
			}
		}
	})
}
