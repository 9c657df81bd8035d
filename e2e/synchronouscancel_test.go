//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// If a commit that waits for a standby is cancelled, the server answers as if it had been
// acknowledged.
func TestACommitWhoseWaitIsCancelledIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sees  bool          // the role can read the standbys' positions
		after time.Duration // how long a commit waits before it is cancelled
	}{
		"at once, a privileged role": {true, 0},
		"later, an ordinary role":    {false, lease * 7 / 20}, // half of the validity
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				primary := on(t, own(t))
				role := primary.role(t, nil)
				if tt.sees {
					_, err := primary.admin.Exec(`GRANT pg_read_all_stats TO "` + role + `"`)
					check(t, err)
				}
				standby := primary.replicate(t, "FIRST 1 (s1)", "s1")[0]
				c := primary.stand(t, d.open(t, 0, primary.DSN(pgcluster.ForRole(role))), primary.election(t), synchronously()).run(t, nil)
				c.survives(t, 1, lease)
				standby.BlackHole()
				stop := primary.cancelWaits(t, tt.after)
				lost := wait[hooks.Demoted](t, c, nil)
				if n := stop(); n == 0 {
					t.Error("nothing was cancelled: the test shows nothing")
				}
				if lost.Reason != hooks.LeaseExpired {
					t.Errorf("demoted because %s: %v", lost.Reason, lost.Err)
				}
				standby.Heal()
				eventually(t, "no commit waits", func() bool { return primary.waiting(t) == 0 })
			})
		})
	}
}

// cancelWaits cancels each commit that has waited for its standbys for that long, until it is
// stopped, and counts them.
func (s *server) cancelWaits(t *testing.T, after time.Duration) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	counted := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			n += one[int](t, s.admin, `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
				WHERE wait_event = 'SyncRep' AND query_start < clock_timestamp() - $1::bigint * interval '1 microsecond'`, after.Microseconds())
			time.Sleep(10 * time.Millisecond)
		}
		counted <- n
	}()
	return func() int {
		cancel()
		return <-counted
	}
}

// On a primary that is cut off from its standbys, the COMMIT of a fenced transaction waits,
// and InTx does not report success.
func TestInTxWaitsForTheSynchronousStandbys(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		primary := on(t, own(t))
		standby := primary.replicate(t, "FIRST 1 (s1)", "s1")[0]
		pool := d.open(t, 0, primary.DSN())
		c, term := primary.lead(t, pool, primary.election(t), synchronously())
		write := func() error {
			return term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
				_, err := tx.Exec("SELECT pg_logical_emit_message(true, 'a write', '')")
				return err
			})
		}
		check(t, write())
		standby.BlackHole()
		if err := write(); !errors.Is(err, elector.ErrOutcomeUnknown) {
			t.Errorf("InTx on a primary that is cut off: %v", err)
		}
		wait[hooks.Demoted](t, c, nil)
		standby.Heal()
	})
}
