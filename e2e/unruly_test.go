//go:build unix

package e2e_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/unruly"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// openUnruly opens the first candidate's pool, with connections of that habit.
func (d drivers) openUnruly(t *testing.T, dsn string, h unruly.Habit) *sql.DB {
	t.Helper()
	pool, err := unruly.Open(d.name(0), dsn, h, nil)
	check(t, err)
	t.Cleanup(func() { expect(t, pool.Close()) })
	return pool
}

// long are the options of a leader whose lease ends on no busy machine. Its heartbeats are frequent.
var long = []elector.Option{elector.WithLease(time.Minute), elector.WithHeartbeatInterval(heartbeat), elector.WithRetryInterval(retry)}

// listened are the habits with which a connection of pgx can be waited on.
var listened = map[unruly.Habit]bool{unruly.None: true, unruly.Overwrites: true}

// Whether a connection can be waited on is tried by its effect. One that cannot costs nobody an election or
// a term.
func TestAConnectionThatCannotBeWaitedOnCostsNoElectionAndNoTerm(t *testing.T) {
	inSessionScope(t, "its connections lead to the server itself")
	t.Parallel()
	for _, h := range append([]unruly.Habit{unruly.None}, append(unruly.Wires, unruly.Wrappers...)...) {
		t.Run(string(h), func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				s := direct(t)
				for name, opts := range map[string][]elector.Option{"session": nil, "transaction": {elector.WithScope(elector.TransactionScope)}} {
					t.Run(name, func(t *testing.T) {
						c := s.stand(t, d.openUnruly(t, s.DSN(), h), s.election(t), append(append(long, directly()), opts...)...).run(t, nil)
						first := c.leads(t, d.listens() && listened[h])
						term, beats := termOf(t, c), c.rec.Cursor()
						for range 5 {
							next[hooks.Heartbeat](t, beats, nil)
							for range 50 {
								check(t, term.Verify(soon(t)))
							}
						}
						for _, f := range c.rec.Failures() {
							t.Errorf("reported (%s): %v", f.Op, f.Err)
						}
						for _, lost := range c.rec.Demoted() {
							t.Errorf("demoted: %v", lost.Err)
						}
						if n := len(s.holders(t, c.Key())); n != 1 || term.Token() != first.Token {
							t.Errorf("%d sessions hold the lock, of token %d, then %d", n, first.Token, term.Token())
						}
					})
				}
			})
		})
	}
}

// A Service over all pods, or a route in a failover, leads connections to the primary and to standbys.
func TestAPoolThatLeadsToPrimaryAndStandbyIsNotRefused(t *testing.T) {
	inSessionScope(t, "its connections lead to the servers themselves")
	t.Parallel()
	primary := own(t)
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	routes := map[string]func(p *pgcluster.Proxy){
		"in turn":                  func(p *pgcluster.Proxy) { p.LeadTo(primary, standby) },
		"in turn, the other first": func(p *pgcluster.Proxy) { p.LeadTo(standby, primary) },
	}
	for n := range 3 {
		routes[fmt.Sprint("once, connection ", n+1)] = func(p *pgcluster.Proxy) {
			all := []*pgcluster.Cluster{primary, primary, primary}
			all[n] = standby
			p.LeadTo(primary)
			p.Divert(all...)
		}
	}
	overEach(t, func(t *testing.T, d drivers) {
		for name, route := range routes {
			for scope, opts := range map[string][]elector.Option{"session": nil, "transaction": {elector.WithScope(elector.TransactionScope)}} {
				for _, idle := range []int{-1, 2} { // connections that the pool keeps
					t.Run(fmt.Sprint(name, ", ", scope, ", idle ", idle), func(t *testing.T) {
						t.Parallel()
						s := withoutPooler(t, primary)
						l := s.behindAProxy(t)
						route(l.proxy)
						pool := d.open(t, 0, l.cut())
						pool.SetMaxIdleConns(idle)
						c := s.stand(t, pool, s.election(t), append(append(long, directly()), opts...)...)
						c.moved = true // its pool may lead elsewhere
						c.run(t, nil)
						e := c.elected(t)
						expect(t, termOf(t, c).Verify(soon(t)))
						session := one[string](t, s.admin, "SELECT application_name FROM pg_stat_activity WHERE pid = $1", s.holders(t, c.Key())[0])
						if session != c.CandidateID() || e.Token == 0 {
							t.Errorf("its session has the application_name %q", session)
						}
						for _, f := range c.rec.Failures() {
							if f.Op == hooks.OpSetting || f.Permanent || !errors.Is(f.Err, elector.ErrServerReadOnly) && !strings.Contains(f.Err.Error(), "two servers") {
								t.Errorf("reported (%s): %v", f.Op, f.Err)
							}
						}
					})
				}
			}
		}
	})
}
