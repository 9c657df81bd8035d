package fenced

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

func TestALateTransactionReturnsToThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		pool := (&drivertest.Driver{Beginning: func(context.Context, driver.TxOptions) error { <-late; return nil }}).Open()
		defer pool.Close()
		s, err := session.NewSource(pool, session.Config{Lease: lease.Lease{Length: time.Minute}}).Borrow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.GiveBack()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := Begin(ctx, s, pool, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
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
			pool := (&drivertest.Driver{
				Committing: func() error { return errors.New("no SQLSTATE") },
				Exec:       func(context.Context, string) (int64, error) { return 0, answer },
				Query:      func(context.Context, string, []any) (drivertest.Rows, error) { return drivertest.One(int64(0)) },
			}).Open()
			defer pool.Close()
			s, err := session.NewSource(pool, session.Config{Lease: lease.Lease{Length: time.Minute}}).Borrow(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer s.GiveBack()
			tx, err := Begin(t.Context(), s, pool, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Finish(nil); !errors.Is(err, want) {
				t.Errorf("the server answers %v: got %v, want %v", answer, err, want)
			}
		})
	}
}
