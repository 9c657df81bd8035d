package pin_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// pinned runs a test in virtual time with a pinned connection of the driver.
func pinned(t *testing.T, d *drivertest.Driver, test func(t *testing.T, c *pin.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pool := d.Open()
		defer pool.Close()
		c, late, err := pin.Take(t.Context(), pool, time.Minute)
		if err != nil || late {
			t.Fatalf("late %t: %v", late, err)
		}
		d.Calls()
		test(t, c)
	})
}

// within makes a call that holds the slot.
func within(t *testing.T, c *pin.Conn, do func(ctx context.Context, q *db.Queries) error) error {
	t.Helper()
	answered, err := c.Call(t.Context(), do, nil)
	if !answered {
		t.Errorf("not answered: %v", err)
	}
	return err
}

func wantCalls(t *testing.T, d *drivertest.Driver, want ...string) {
	t.Helper()
	if got := d.Calls(); !slices.Equal(got, want) {
		t.Errorf("the driver was asked %q, want %q", got, want)
	}
}

func ping(ctx context.Context, q *db.Queries) error {
	_, err := q.Ping(ctx)
	return err
}

// pings answers Ping, after these errors.
func pings(errs ...error) func(context.Context, string, []any) (drivertest.Rows, error) {
	return func(context.Context, string, []any) (drivertest.Rows, error) {
		if len(errs) > 0 {
			err := errs[0]
			errs = errs[1:]
			return nil, err
		}
		return drivertest.One(int64(1), false, false)
	}
}

func executes(context.Context, string) (int64, error) { return 0, nil }

func TestAStatementThatTheServerHasForgottenIsAskedOnceMore(t *testing.T) {
	for _, forgotten := range []error{drivertest.State("26000"), drivertest.State("42P05")} {
		d := &drivertest.Driver{Query: pings(forgotten), Exec: executes}
		pinned(t, d, func(t *testing.T, c *pin.Conn) {
			if err := within(t, c, ping); err != nil || c.IsBroken() {
				t.Error(err)
			}
			wantCalls(t, d, "query Ping", "query Ping")
			c.GiveBack()
		})
		d = &drivertest.Driver{Query: pings(forgotten), Exec: executes}
		pinned(t, d, func(t *testing.T, c *pin.Conn) {
			err := within(t, c, func(ctx context.Context, _ *db.Queries) error { return c.Begin() })
			if err != nil || !c.InTx() {
				t.Fatal(err)
			}
			if err := within(t, c, ping); !errors.Is(err, forgotten) {
				t.Errorf("in a transaction, which has failed: %v", err)
			}
			wantCalls(t, d, "begin", "query Ping")
			if err := c.RollBack(); err != nil || c.InTx() {
				t.Error(err)
			}
			c.GiveBack()
		})
	}
	for _, other := range []error{drivertest.State("57014"), drivertest.State("57P01")} {
		d := &drivertest.Driver{Query: pings(other), Exec: executes}
		pinned(t, d, func(t *testing.T, c *pin.Conn) {
			if err := within(t, c, ping); !errors.Is(err, other) {
				t.Error(err)
			}
			wantCalls(t, d, "query Ping")
			if broken := other == drivertest.State("57P01"); c.IsBroken() != broken {
				t.Errorf("broken: %t", c.IsBroken())
			}
			c.Discard(false, false)
		})
	}
}

func TestAConnectionIsBrokenOnlyUntilItAnswers(t *testing.T) {
	d := &drivertest.Driver{Query: pings(drivertest.State("57P01")), Exec: executes}
	pinned(t, d, func(t *testing.T, c *pin.Conn) {
		if err := within(t, c, ping); err == nil || !c.IsBroken() {
			t.Errorf("broken %t: %v", c.IsBroken(), err)
		}
		if err := within(t, c, ping); err != nil || c.IsBroken() {
			t.Errorf("broken %t: %v", c.IsBroken(), err)
		}
		c.GiveBack()
	})
}

// A pool below database/sql keeps no connection that is inside a transaction.
func TestADiscardLeavesATransactionOpenUnlessThereIsOneOrNothingWasChanged(t *testing.T) {
	left := drivertest.State("25P02")
	for name, c := range map[string]struct {
		clean   bool
		prepare func(t *testing.T, c *pin.Conn)
		want    []string
	}{
		"changed": {false, func(*testing.T, *pin.Conn) {}, []string{"exec BEGIN", "close"}},
		"clean":   {true, func(*testing.T, *pin.Conn) {}, []string{"close"}},
		"tainted": {false, func(_ *testing.T, c *pin.Conn) { c.Taint() }, []string{"close"}},
		"a statement meets a transaction that was left open": {false, func(t *testing.T, c *pin.Conn) {
			if err := within(t, c, ping); !errors.Is(err, left) || !errors.Is(err, pgerr.ErrOpenTransaction) {
				t.Error(err)
			}
		}, []string{"query Ping", "close"}},
		"a later statement succeeds": {false, func(t *testing.T, c *pin.Conn) {
			_ = within(t, c, ping)
			if err := within(t, c, ping); err != nil {
				t.Error(err)
			}
		}, []string{"query Ping", "query Ping", "close"}},
		"its own transaction failed": {false, func(t *testing.T, c *pin.Conn) {
			_ = within(t, c, func(ctx context.Context, _ *db.Queries) error { return c.Begin() })
			if err := within(t, c, ping); errors.Is(err, pgerr.ErrOpenTransaction) {
				t.Errorf("it is said to be left by others: %v", err)
			}
			if err := c.Commit(); err != nil || c.InTx() {
				t.Error(err)
			}
		}, []string{"begin", "query Ping", "commit", "exec BEGIN", "close"}},
		"in its own transaction": {false, func(t *testing.T, c *pin.Conn) {
			_ = within(t, c, func(ctx context.Context, _ *db.Queries) error { return c.Begin() })
		}, []string{"begin", "rollback", "exec BEGIN", "close"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &drivertest.Driver{Query: pings(left), Exec: executes}
			pinned(t, d, func(t *testing.T, conn *pin.Conn) {
				c.prepare(t, conn)
				if !conn.Discard(c.clean, false) {
					t.Error("not closed")
				}
				synctest.Wait()
				wantCalls(t, d, c.want...)
			})
		})
	}
}

func TestTheTransactionThatADiscardLeavesIsBegunTwiceAtMost(t *testing.T) {
	d := &drivertest.Driver{Query: pings(), Exec: func(ctx context.Context, _ string) (int64, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}}
	pinned(t, d, func(t *testing.T, c *pin.Conn) {
		began := time.Now()
		if !c.Discard(false, false) || time.Since(began) != pin.CloseGrace/2 {
			t.Errorf("closed after %v", time.Since(began))
		}
		wantCalls(t, d, "exec BEGIN", "exec BEGIN", "close")
	})
	// database/sql prepares it for a driver without direct statements.
	d = &drivertest.Driver{Query: pings()}
	pinned(t, d, func(t *testing.T, c *pin.Conn) {
		if !c.Discard(false, false) {
			t.Error("not closed")
		}
		wantCalls(t, d, "prepare BEGIN", "close")
	})
}

func TestTheRollBackOfATransactionOnADeadLinkAsksNothing(t *testing.T) {
	for _, dead := range []bool{false, true} {
		var of context.Context
		cancelled := false
		d := &drivertest.Driver{Exec: executes,
			Beginning:   func(ctx context.Context, _ driver.TxOptions) error { of = ctx; return nil },
			RollingBack: func() error { cancelled = of.Err() != nil; return nil }}
		pinned(t, d, func(t *testing.T, c *pin.Conn) {
			_ = within(t, c, func(ctx context.Context, _ *db.Queries) error { return c.Begin() })
			c.Discard(true, dead)
			synctest.Wait()
			if cancelled != dead {
				t.Errorf("dead %t: cancelled before the rollback %t", dead, cancelled)
			}
			wantCalls(t, d, "begin", "rollback", "close")
		})
	}
}

func TestACallWithoutAnAnswerGoesOnAndIsToldOf(t *testing.T) {
	errEnough := errors.New("enough")
	for name, failed := range map[string]error{"it succeeds": nil, "it fails": drivertest.State("57014")} {
		t.Run(name, func(t *testing.T) {
			pinned(t, &drivertest.Driver{}, func(t *testing.T, c *pin.Conn) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errEnough)
				defer cancel()
				late := make(chan time.Time, 1)
				began := time.Now()
				answered, err := c.Call(ctx, func(ctx context.Context, _ *db.Queries) error {
					time.Sleep(time.Minute)
					if ctx.Err() != nil {
						t.Error("the call was cancelled, which costs the connection")
					}
					return failed
				}, func() { late <- time.Now() })
				if answered || !errors.Is(err, errEnough) || time.Since(began) != time.Second || !c.IsBusy() {
					t.Errorf("answered %t after %v: %v", answered, time.Since(began), err)
				}
				if answered, err = c.Call(ctx, ping, nil); answered || !errors.Is(err, errEnough) {
					t.Errorf("with a context that has ended: answered %t: %v", answered, err)
				}
				hurried, stop := context.WithTimeoutCause(t.Context(), time.Second, errEnough)
				defer stop()
				if answered, err = c.Call(hurried, ping, nil); answered || !errors.Is(err, errEnough) {
					t.Errorf("behind the other: answered %t: %v", answered, err)
				}
				if err := within(t, c, func(context.Context, *db.Queries) error { return nil }); err != nil || time.Since(began) != time.Minute {
					t.Errorf("the next call, after %v: %v", time.Since(began), err)
				}
				synctest.Wait()
				if told := len(late) == 1; told != (failed == nil) || c.IsBusy() {
					t.Errorf("told of a late success: %t", told)
				}
				c.GiveBack()
			})
		})
	}
}

func TestADiscardCancelsACallThatHasHadTimeToSend(t *testing.T) {
	for name, listens := range map[string]bool{"the driver listens": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			pinned(t, &drivertest.Driver{}, func(t *testing.T, c *pin.Conn) {
				cancelled := make(chan time.Duration, 1)
				returned := make(chan struct{})
				began := time.Now()
				go func() {
					defer close(returned)
					_, _ = c.Call(t.Context(), func(ctx context.Context, _ *db.Queries) error {
						<-ctx.Done()
						cancelled <- time.Since(began)
						if !listens {
							time.Sleep(time.Minute)
						}
						return ctx.Err()
					}, nil)
				}()
				synctest.Wait()
				closed := c.Discard(true, false)
				if took := <-cancelled; closed != listens || took != pin.SendGrace {
					t.Errorf("closed %t, cancelled after %v", closed, took)
				}
				if took := time.Since(began); !listens && took != pin.CloseGrace {
					t.Errorf("waited %v", took)
				}
				<-returned
			})
		})
	}
}

func TestAConnectionThatComesTooLateGoesBackToThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		pool := (&drivertest.Driver{Connecting: drivertest.Late(open)}).Open()
		defer pool.Close()
		began := time.Now()
		if _, late, err := pin.Take(t.Context(), pool, time.Minute); !late || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute+pin.CloseGrace {
			t.Errorf("late %t after %v: %v", late, time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, late, err := pin.Take(ctx, pool, time.Minute); late || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's context has ended first: late %t: %v", late, err)
		}
		close(open)
		synctest.Wait()
		if s := pool.Stats(); s.InUse != 0 || s.Idle == 0 {
			t.Errorf("%+v", s)
		}
		errRefused := errors.New("refused")
		refusing := (&drivertest.Driver{Connecting: func(context.Context) error { return errRefused }}).Open()
		defer refusing.Close()
		if _, late, err := pin.Take(t.Context(), refusing, time.Minute); late || !errors.Is(err, errRefused) {
			t.Errorf("late %t: %v", late, err)
		}
	})
}

func TestAPoolThatIsOpenIsAskedForNothing(t *testing.T) {
	d := &drivertest.Driver{}
	pool := d.Open()
	if err := pin.CheckOpen(pool); err != nil {
		t.Error(err)
	}
	wantCalls(t, d)
	_ = pool.Close()
	if err := pin.CheckOpen(pool); err == nil {
		t.Error("a closed pool is said to be open")
	}
}

func TestAStatementIsPreparedOnceAndThenExecuted(t *testing.T) {
	refused := error(nil)
	d := &drivertest.Driver{Exec: executes, Query: func(context.Context, string, []any) (drivertest.Rows, error) {
		if refused != nil {
			return nil, refused
		}
		return drivertest.One(true)
	}}
	pinned(t, d, func(t *testing.T, c *pin.Conn) {
		prepare := func(statements ...string) error {
			return within(t, c, func(ctx context.Context, _ *db.Queries) error { return c.Prepare(ctx, statements...) })
		}
		unlock := func(ctx context.Context, q *db.Queries) error { _, err := q.Unlock(ctx, 7); return err }
		if err := within(t, c, unlock); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := prepare(db.Unlock); err != nil {
				t.Error(err)
			}
		}
		if err := within(t, c, unlock); err != nil {
			t.Error(err)
		}
		wantCalls(t, d, "query Unlock", "prepare Unlock", "execute Unlock")
		c.GiveBack()
	})
	pinned(t, &drivertest.Driver{}, func(t *testing.T, c *pin.Conn) {
		if err := within(t, c, func(ctx context.Context, _ *db.Queries) error { return c.Prepare(ctx, db.Unlock) }); err == nil {
			t.Error("prepared by a driver that prepares nothing")
		}
		c.GiveBack()
	})
}

func TestInsideATransactionItsStatementsAreItsOwn(t *testing.T) {
	d := &drivertest.Driver{Exec: executes, Query: func(context.Context, string, []any) (drivertest.Rows, error) { return drivertest.One("shown") }}
	errBegin := errors.New("no transaction")
	pinned(t, d, func(t *testing.T, c *pin.Conn) {
		err := within(t, c, func(ctx context.Context, _ *db.Queries) error {
			if err := c.Begin(); err != nil {
				return err
			}
			if err := c.Exec(ctx, "SAVEPOINT s"); err != nil {
				return err
			}
			text, err := c.Show(ctx, "SHOW x")
			if text != "shown" {
				err = fmt.Errorf("shown: %q, %w", text, err)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if err := c.Commit(); err != nil {
			t.Error(err)
		}
		wantCalls(t, d, "begin", "exec SAVEPOINT s", "query SHOW x", "commit")
		c.GiveBack()
	})
	d = &drivertest.Driver{Beginning: func(context.Context, driver.TxOptions) error { return errBegin }}
	pinned(t, d, func(t *testing.T, c *pin.Conn) {
		if err := within(t, c, func(ctx context.Context, _ *db.Queries) error { return c.Begin() }); !errors.Is(err, errBegin) || c.InTx() {
			t.Errorf("in a transaction %t: %v", c.InTx(), err)
		}
		c.GiveBack()
	})
}

// database/sql would close a connection whose ping fails, and with it a lock would be free.
func TestAPingThatFailsLeavesTheConnectionOpen(t *testing.T) {
	for _, want := range []error{nil, driver.ErrBadConn} {
		d := &drivertest.Driver{Ping: func(context.Context) error { return want }}
		pinned(t, d, func(t *testing.T, c *pin.Conn) {
			if err := within(t, c, func(ctx context.Context, _ *db.Queries) error { return c.Ping(ctx) }); err != want || c.IsBroken() != (want != nil) {
				t.Errorf("got %v, want %v", err, want)
			}
			wantCalls(t, d, "ping")
			c.GiveBack()
		})
	}
}

func TestAfterATransactionThatCouldNotBeginStatementsAreOutsideOne(t *testing.T) {
	errRefused := errors.New("refused")
	d := &drivertest.Driver{Exec: executes, Query: pings(), Beginning: func(context.Context, driver.TxOptions) error { return errRefused }}
	pinned(t, d, func(t *testing.T, c *pin.Conn) {
		if err := within(t, c, func(ctx context.Context, _ *db.Queries) error { return c.Begin() }); !errors.Is(err, errRefused) || c.InTx() {
			t.Errorf("in a transaction: %t: %v", c.InTx(), err)
		}
		if err := within(t, c, ping); err != nil {
			t.Error(err)
		}
		c.GiveBack()
	})
}
