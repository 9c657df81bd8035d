package fenced

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/session"
)

// A lateDriver ignores contexts. It begins transactions once its channel is closed.
type lateDriver struct{ beginning chan struct{} }

func (d lateDriver) Connect(context.Context) (driver.Conn, error) { return lateConn{d}, nil }
func (d lateDriver) Driver() driver.Driver                        { return nil }

type lateConn struct{ d lateDriver }

func (c lateConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	<-c.d.beginning
	return c, nil
}
func (c lateConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c lateConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c lateConn) Close() error                        { return nil }
func (c lateConn) Commit() error                       { return nil }
func (c lateConn) Rollback() error                     { return nil }

// Both drivers implement these. Without them database/sql closes the connection of a transaction
// whose context has ended.
func (c lateConn) ResetSession(context.Context) error { return nil }
func (c lateConn) IsValid() bool                      { return true }

func TestALateTransactionReturnsToThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		pool := sql.OpenDB(lateDriver{late})
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
