//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// A leader whose heartbeats are far apart learns that its session has ended from what
// else it asks of the database.

// seldom is a heartbeat interval that no test lasts as long as.
var seldom = []elector.Option{elector.WithLease(10 * time.Minute), elector.WithHeartbeatInterval(2 * time.Minute)}

func TestAStatementThatMeetsADeadServerEndsTheTermAtOnce(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(t *testing.T, l link, c *candidate, term *elector.Term) error{
		"InTx, the server is gone": func(t *testing.T, l link, c *candidate, term *elector.Term) error {
			check(t, l.Kill())
			return term.InTx(soon(t), c.pool, nil, func(*sql.Tx) error { return nil })
		},
		"InTx, the server goes meanwhile": func(t *testing.T, l link, c *candidate, term *elector.Term) error {
			return term.InTx(soon(t), c.pool, nil, func(tx *sql.Tx) error {
				check(t, l.Kill())
				_, err := tx.ExecContext(soon(t), "SELECT 1")
				return err
			})
		},
		"InTx, the server goes before COMMIT": func(t *testing.T, l link, c *candidate, term *elector.Term) error {
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
				l := behindAProxy(t)
				c := l.stand(t, d, 0, l.election(t), seldom...)
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

// A witness looks at IsLeader, again and again, and tells for how long the
// candidate believed that it leads. Each look has a time before and a time after
// it, on the one monotonic clock that all processes of a machine share. A belief
// counts from after the first look that saw it until before the last, so that
// two beliefs that overlap are so for certain.
type witness struct {
	e    *elector.Elector
	tell func(entry)
	spin bool

	belief entry // the one that goes on; Kind is "" if none
	told   int64 // up to when
	last   int64 // when the look before began
}

const (
	pauseBetweenLooks = 500 * time.Microsecond
	tellEvery         = 50 * time.Millisecond  // of a belief that goes on: what a kill may cost
	blinkAfter        = 400 * time.Millisecond // longer between two looks, the process was not running
)

func newWitness(e *elector.Elector, tell func(entry), spin bool) *witness {
	return &witness{e: e, tell: tell, spin: spin, last: monotonic()}
}

func (w *witness) watch(ctx context.Context) {
	for ctx.Err() == nil {
		w.look()
		if !w.spin {
			time.Sleep(pauseBetweenLooks)
		}
	}
	w.close()
}

func (w *witness) look() {
	before := monotonic()
	believes := w.e.IsLeader()
	after := monotonic()
	if before-w.last > int64(blinkAfter) {
		w.tell(entry{Kind: blinked, From: w.last, To: before, Believes: believes})
	}
	w.last = before
	if !believes {
		w.close()
		return
	}
	if term, leading := w.e.Term(); leading && term.Token() != w.belief.Token {
		w.close()
		w.belief = entry{Kind: believed, Token: term.Token(), From: after}
	}
	if w.belief.Kind == "" {
		return // it has just ended: which it was is not known
	}
	w.belief.To = max(before, w.belief.From)
	if before-w.told > int64(tellEvery) {
		w.tell(w.belief)
		w.told = before
	}
}

// close tells of the belief that has ended, if any.
func (w *witness) close() {
	if w.belief.Kind != "" {
		w.tell(w.belief)
	}
	w.belief = entry{}
}

// monotonic is the machine's clock that is never set, in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}
