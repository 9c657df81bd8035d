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
