//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// A standby is promoted while its primary goes on to answer, and the route leads to the
// new one: the connections that exist stay where they are.
func TestATermOnAnOldPrimaryEndsWhenThePoolReachesTheNewOne(t *testing.T) {
	t.Parallel()
	for name, meet := range map[string]func(t *testing.T, c *candidate, term *elector.Term) error{
		"InTx": func(t *testing.T, c *candidate, term *elector.Term) error {
			return term.InTx(soon(t), c.pool, nil, func(*sql.Tx) error {
				t.Error("a transaction of the old term has entered on the new primary")
				return nil
			})
		},
		"Leader": func(t *testing.T, c *candidate, _ *elector.Term) error {
			_, err := c.Leader(soon(t))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				l := behindAProxy(t)
				standby, err := l.AddStandby(t.Context())
				check(t, err)
				pool := d.open(t, 0, l.proxy.DSN())
				c := on(t, standby).stand(t, pool, l.election(t), seldom...).run(t, nil)
				old := c.elected(t)
				term := termOf(t, c)
				var stale []*sql.Conn // to the old primary, which the pool lends again when it has them back
				for range 2 {
					conn, err := pool.Conn(soon(t))
					check(t, err)
					stale = append(stale, conn)
				}
				check(t, standby.Promote(soon(t)))
				l.proxy.LeadTo(standby)
				after := c.after()
				err = meet(t, c, term)
				for _, conn := range stale {
					check(t, conn.Close())
				}
				closed(t, "the term's context is done", term.Context().Done())
				cause := context.Cause(term.Context())
				wraps(t, cause, elector.ErrSessionLost)
				wraps(t, cause, elector.ErrOldPrimary)
				for _, part := range []string{
					fmt.Sprintf("timeline 2 at 127.0.0.1:%d", standby.Port()), fmt.Sprintf("timeline 1 at 127.0.0.1:%d", l.Port()),
				} {
					if !strings.Contains(cause.Error(), part) {
						t.Errorf("the cause does not say %q: %v", part, cause)
					}
				}
				if name == "InTx" {
					wraps(t, err, elector.ErrNotLeader)
					wraps(t, err, elector.ErrOldPrimary)
				}
				if e := next[hooks.Demoted](t, after, nil); e.Reason != hooks.SessionLost {
					t.Errorf("demoted because %s: %v", e.Reason, e.Err)
				}
				if fresh := nextElected(t, after); fresh.Token>>48 <= old.Token>>48 {
					t.Errorf("elected with token %x after %x: on the old primary", fresh.Token, old.Token)
				}
				if n := len(l.holders(t, c.Key())); n != 0 {
					t.Errorf("%d backends of the old primary have the lock", n)
				}
			})
		})
	}
}

// A role without the privilege to identify servers is refused all the same, and told less.
func TestARoleThatMayNotIdentifyServersIsRefusedAllTheSame(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := on(t, own(t))
		_, err := s.admin.Exec("CREATE DATABASE elsewhere")
		check(t, err)
		role := pgcluster.ForRole(s.role(t, nil))
		c := s.stand(t, d.open(t, 0, s.DSN(role)), s.election(t))
		elsewhere := d.open(t, 0, s.DSN(role, pgcluster.ForDatabase("elsewhere")))
		term, err := c.Campaign(soon(t))
		check(t, err)
		const revoke = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"
		for _, step := range []struct {
			revoke func() (sql.Result, error)
			want   string
		}{
			{func() (sql.Result, error) {
				return pgx.open(t, 0, s.DSN(pgcluster.ForDatabase("elsewhere"))).Exec(revoke)
			}, "not on the server and database of this pool"},
			{func() (sql.Result, error) { return s.admin.Exec(revoke) }, "not on the server and database of this pool"},
			{func() (sql.Result, error) {
				return pgx.open(t, 0, s.DSN(pgcluster.ForDatabase("elsewhere"))).Exec("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
			}, "permission denied"},
			{func() (sql.Result, error) {
				return s.admin.Exec("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
			}, "another database of this server"},
		} {
			_, err := step.revoke()
			check(t, err)
			err = term.InTx(soon(t), elsewhere, nil, func(*sql.Tx) error { return nil })
			wraps(t, err, elector.ErrNotLeader)
			if !strings.Contains(err.Error(), step.want) || !term.Valid() {
				t.Errorf("want %q, valid %v: %v", step.want, term.Valid(), err)
			}
		}
		check(t, term.Resign(soon(t)))
	})
}
