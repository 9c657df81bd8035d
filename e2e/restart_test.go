//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// firstLeader waits until one of the candidates is elected with a token above after.
func firstLeader(t *testing.T, all []*candidate, after int64) (found hooks.Elected) {
	t.Helper()
	eventually(t, "one of the candidates is elected", func() bool {
		for _, c := range all {
			for _, e := range c.rec.Elected() {
				if e.Token > after {
					found = e
					return true
				}
			}
		}
		return false
	})
	return found
}

// seldom is a heartbeat interval longer than any test, so that a leader learns the end of
// its session from other statements.
var seldom = []elector.Option{elector.WithLease(10 * time.Minute), elector.WithHeartbeatInterval(2 * time.Minute)}

// The links have no pooler: it would hide the end of the server.
func TestAFailedStatementOnADeadServerEndsTheTermAtOnce(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(t *testing.T, l link, c *candidate, term *elector.Term) error{
		"InTx, the server is gone": func(t *testing.T, l link, c *candidate, term *elector.Term) error {
			check(t, l.Kill())
			return term.InTx(soon(t), c.pool, nil, func(*sql.Tx) error { return nil })
		},
		"InTx, the server is killed meanwhile": func(t *testing.T, l link, c *candidate, term *elector.Term) error {
			return term.InTx(soon(t), c.pool, nil, func(tx *sql.Tx) error {
				check(t, l.Kill())
				_, err := tx.ExecContext(soon(t), "SELECT 1")
				return err
			})
		},
		"InTx, the server is killed before COMMIT": func(t *testing.T, l link, c *candidate, term *elector.Term) error {
			return term.InTx(soon(t), c.pool, nil, func(tx *sql.Tx) error { return l.Kill() })
		},
		"InTx, a proxy cuts connections": func(t *testing.T, l link, c *candidate, term *elector.Term) error {
			return term.InTx(soon(t), c.pool, nil, func(tx *sql.Tx) error {
				l.proxy.Reset()
				_, err := tx.ExecContext(soon(t), "SELECT 1")
				return err
			})
		},
		"Leader, the server is gone": func(t *testing.T, l link, c *candidate, _ *elector.Term) error {
			check(t, l.Kill())
			_, err := c.Leader(soon(t))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				l := behindARoute(t)
				c := l.stand(t, d, 0, l.election(t), append([]elector.Option{directly()}, seldom...)...)
				term, err := c.Campaign(soon(t))
				check(t, err)
				if err := ask(t, l, c, term); err == nil {
					t.Error("no error")
				}
				closed(t, "the term's context is done", term.Context().Done())
				wraps(t, context.Cause(term.Context()), elector.ErrSessionLost)
				wraps(t, term.Resign(soon(t)), elector.ErrNotLeader)
				if n := len(c.rec.Heartbeats()); n != 0 {
					t.Errorf("%d heartbeats were answered", n)
				}
				if e := wait[hooks.Demoted](t, c, nil); e.Reason != hooks.SessionLost {
					t.Errorf("demoted because %s: %v", e.Reason, e.Err)
				}
			})
		})
	}
}
