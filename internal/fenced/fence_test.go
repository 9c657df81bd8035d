package fenced

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// answering makes a driver whose server knows one transaction, and one term.
func answering() *drivertest.Driver {
	const name = "4711 1700000000.000000"
	return drivertest.ByName(map[string]drivertest.Rows{
		"TryPair": {{true}}, "EnterTerm": {{"entered", name}}, "FencedTransaction": {{name}},
		"TryElection": {{"granted", int64(4711), int64(0), ""}}, "ConfirmElection": {{true, int64(4711), false, int64(1<<48 | 745), "0"}},
		"Ping": {{int64(4711), false, false}},
	}, map[string]error{})
}

// termOn makes a term on a session of the pool.
func termOn(t *testing.T, pool *sql.DB, reports func(error)) Term {
	t.Helper()
	a := election.New(election.NewSource(pool, election.SessionConfig{Lease: lease.Lease{Length: time.Minute, Heartbeat: 10 * time.Second}}), election.Config{Key: 7}).Attempt(t.Context())
	if a.Outcome != election.Granted {
		t.Fatalf("got %+v", a)
	}
	s := a.Lock.Session()
	t.Cleanup(s.Close)
	return Term{Lock: a.Lock, Ended: s.TermContext(), Report: reports}
}

// The context has no deadline, as the one that lead gets.
func TestASilentConnectionIsGivenUpForAnother(t *testing.T) {
	for name, silent := range map[string]func(d *drivertest.Driver, hang func(context.Context) error){
		"in BEGIN": func(d *drivertest.Driver, hang func(context.Context) error) {
			d.Beginning = func(ctx context.Context, _ driver.TxOptions) error { return hang(ctx) }
		},
		"while it enters the term": func(d *drivertest.Driver, hang func(context.Context) error) {
			answer := d.Query
			d.Query = func(ctx context.Context, statement string, args []any) (drivertest.Rows, error) {
				if drivertest.NameOf(statement) == "EnterTerm" {
					if err := hang(ctx); err != nil {
						return nil, err
					}
				}
				return answer(ctx, statement, args)
			}
		},
		"when the pool lends it": func(d *drivertest.Driver, hang func(context.Context) error) { d.Reset = hang },
	} {
		for _, listens := range []bool{true, false} { // lib/pq does not listen to the context of BEGIN
			synctest.Test(t, func(t *testing.T) {
				d, answered, calls := answering(), make(chan struct{}), atomic.Int32{}
				silent(d, func(ctx context.Context) error {
					if calls.Add(1) > 1 {
						return nil
					}
					if !listens {
						ctx = context.Background()
					}
					select {
					case <-answered:
						return nil
					case <-ctx.Done():
						return driver.ErrBadConn
					}
				})
				pool := d.Open()
				defer pool.Close()
				var reports []error
				in := termOn(t, pool, func(err error) { reports = append(reports, err) })
				idle, err := pool.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				_ = idle.Close()
				began := time.Now()
				tx, err := in.Enter(context.Background(), pool, nil)
				if err != nil || time.Since(began) != longestOwn {
					t.Fatalf("%s, listens %t: %v after %v", name, listens, err, time.Since(began))
				}
				if len(reports) != 1 || !errors.Is(reports[0], pgerr.ErrNoAnswer) {
					t.Errorf("%s, listens %t: reported %v", name, listens, reports)
				}
				close(answered)             // to lib/pq, which waits on; a mutex of database/sql would stop the time meanwhile
				time.Sleep(2 * time.Minute) // no bound of the first statements ends what goes on
				if err := tx.Finish(false, nil); err != nil {
					t.Errorf("%s, listens %t: %v", name, listens, err)
				}
				synctest.Wait()
				if n := pool.Stats().InUse; n != 1 {
					t.Errorf("%s, listens %t: %d connections are in use, with that of the session", name, listens, n)
				}
			})
		}
	}
}

// The caller gives up first.
func TestALateTransactionReturnsToThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, d := make(chan struct{}), answering()
		d.Beginning = func(context.Context, driver.TxOptions) error { <-late; return nil }
		pool := d.Open()
		defer pool.Close()
		in := termOn(t, pool, func(err error) { t.Errorf("reported %v", err) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := in.Enter(ctx, pool, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		close(late)
		synctest.Wait()
		if n := pool.Stats().InUse; n != 1 {
			t.Errorf("%d connections are in use, with that of the session", n)
		}
	})
}

// An error of COMMIT that says nothing of the connection: the server has answered ROLLBACK, or is gone.
// A wrapper may hide the driver's Ping, so that it succeeds without a question.
func TestAStatementShowsWhetherTheServerLivesAfterCommit(t *testing.T) {
	errGone := errors.New("gone")
	for answer, want := range map[error]error{nil: pgerr.ErrRolledBack, errGone: pgerr.ErrOutcomeUnknown} {
		synctest.Test(t, func(t *testing.T) {
			d := answering()
			d.Committing = func() error { return errors.New("no SQLSTATE") }
			d.Exec = func(context.Context, string) (int64, error) { return 0, answer }
			pool := d.Open()
			defer pool.Close()
			tx, err := termOn(t, pool, func(err error) { t.Errorf("reported %v", err) }).Enter(t.Context(), pool, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Finish(false, nil); !errors.Is(err, want) {
				t.Errorf("the server answers %v: got %v, want %v", answer, err, want)
			}
		})
	}
}
