package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

func TestAConnectionOfPgxIsWaitedOnAndUsedAfterwards(t *testing.T) {
	k := &talk{}
	talking(t, k, func(t *testing.T, c *pin.Conn) {
		for range 2 {
			if deaf, spoilt := try(t.Context(), c); deaf != nil || spoilt {
				t.Fatalf("deaf: %v, spoilt %t", deaf, spoilt)
			}
			if err := pingFor(t, c); err != nil {
				t.Errorf("after a trial: %v", err)
			}
		}
		stop := listenFor(t, c)
		for range 3 {
			k.says <- &pgproto3.NotificationResponse{PID: 2, Channel: "c", Payload: "p"}
			synctest.Wait()
			if !c.IsBusy() {
				t.Fatal("a notification ends the wait")
			}
			if err := pingFor(t, c); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		stop()
		if err := pingFor(t, c); err != nil || k.asked.Load() != 6 {
			t.Errorf("%d statements were sent: %v", k.asked.Load(), err)
		}
		c.GiveBack()
	})
}

// Each message is one that a server may send at any time. The statement is sent while half of it has arrived.
func TestAMessageThatArrivesInTwoHalvesLosesNoConnectionOfPgx(t *testing.T) {
	for name, m := range map[string]pgproto3.BackendMessage{
		"notice":       &pgproto3.NoticeResponse{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: "01000", Message: "the weather changes"},
		"parameter":    &pgproto3.ParameterStatus{Name: "application_name", Value: "another"},
		"notification": &pgproto3.NotificationResponse{PID: 7, Channel: "channel", Payload: "payload"},
	} {
		text, err := m.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, cut := range []int{1, 4, 5, len(text) - 1, len(text)} { // in the header, behind it, and none
			t.Run(fmt.Sprint(name, " ", cut), func(t *testing.T) {
				k := &talk{}
				talking(t, k, func(t *testing.T, c *pin.Conn) {
					stop := listenFor(t, c)
					for range 3 {
						k.says <- part(text[:cut])
						synctest.Wait()
						if !c.IsBusy() {
							t.Fatal("it ends the wait")
						}
						k.rest <- part(text[cut:])
						if err := pingFor(t, c); err != nil {
							t.Fatal(err)
						}
						synctest.Wait()
					}
					stop()
					if err := pingFor(t, c); err != nil || k.asked.Load() != 4 || k.dials.Load() != 1 {
						t.Errorf("%d statements were sent on %d connections: %v", k.asked.Load(), k.dials.Load(), err)
					}
					c.GiveBack()
				})
			})
		}
	}
}

// A context that ends makes this configuration send a cancel request, and wait for two seconds.
func TestTheEndOfAWaitSendsNoCancelRequestAndDelaysNoStatement(t *testing.T) {
	k := &talk{watching: func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: 2 * time.Second}
	}}
	talking(t, k, func(t *testing.T, c *pin.Conn) {
		stop := listenFor(t, c)
		began := time.Now()
		for range 50 {
			synctest.Wait()
			if !c.IsBusy() {
				t.Fatal("it is not waited on")
			}
			if err := pingFor(t, c); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		if took := time.Since(began); took > 0 || k.dials.Load() > 1 {
			t.Errorf("50 waits ended in %v, with %d connections", took, k.dials.Load())
		}
		c.GiveBack()
	})
}

func TestWhatTheServerSaysAtTheEndOfAnIdleConnectionOfPgxIsReadAtOnce(t *testing.T) {
	for name, last := range map[string]pgproto3.BackendMessage{
		"an error": &pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P01", Message: "terminating connection"},
		"nothing":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			k := &talk{}
			talking(t, k, func(t *testing.T, c *pin.Conn) {
				lost := make(chan error, 1)
				go c.Listen(t.Context(), wait, func(err error) { lost <- err })
				synctest.Wait()
				k.says <- last
				synctest.Wait()
				select {
				case err := <-lost:
					if last != nil && pgerr.State(err) != "57P01" || !pgerr.Broken(err) || !c.IsBroken() {
						t.Errorf("lost: %v, broken %t", err, c.IsBroken())
					}
				default:
					t.Error("it was not noticed")
				}
				c.Discard(true, true)
			})
		})
	}
}

var errTooSoon = errors.New("a deadline of the network")

// A hastyConn ends a read by an error of its own.
type hastyConn struct {
	net.Conn
	hasty *atomic.Bool
	err   error
}

func (c hastyConn) Read(into []byte) (int, error) {
	if c.hasty.Load() {
		return 0, c.err
	}
	return c.Conn.Read(into)
}

type tooSoon struct{}

func (tooSoon) Error() string   { return errTooSoon.Error() }
func (tooSoon) Unwrap() error   { return errTooSoon }
func (tooSoon) Timeout() bool   { return true }
func (tooSoon) Temporary() bool { return true }

// A timelessConn knows no deadlines.
type timelessConn struct {
	net.Conn
	timeless *atomic.Bool
	says     error // to who sets one
}

func (c timelessConn) SetReadDeadline(at time.Time) error {
	if c.timeless.Load() {
		return c.says
	}
	return c.Conn.SetReadDeadline(at)
}

// A lateConn loses the first deadline that ends a wait, as one whose Read sets a deadline of its own just after it.
type lateConn struct {
	net.Conn
	lost *atomic.Int32
}

func (c lateConn) SetReadDeadline(at time.Time) error {
	if at.Equal(time.Unix(1, 0)) && c.lost.Add(1) == 1 {
		return nil
	}
	return c.Conn.SetReadDeadline(at)
}

func TestADeadlineThatEndsAWaitIsSetUntilTheWaitHasEnded(t *testing.T) {
	var lost atomic.Int32
	talking(t, &talk{wrapping: func(c net.Conn) net.Conn { return lateConn{c, &lost} }}, func(t *testing.T, c *pin.Conn) {
		stop, began := listenFor(t, c), time.Now()
		stop()
		if took := time.Since(began); lost.Load() < 2 || took > 10*time.Millisecond {
			t.Errorf("the deadline was set %d times, and the wait ended after %v", lost.Load(), took)
		}
		if err := pingFor(t, c); err != nil {
			t.Error(err)
		}
		c.Discard(true, true)
	})
}

func TestAConnectionOfPgxWithoutDeadlinesThatCanBeSetIsNotWaitedOn(t *testing.T) {
	var now atomic.Bool
	for name, wrapping := range map[string]func(net.Conn) net.Conn{
		"it has its own":       func(c net.Conn) net.Conn { return hastyConn{c, &now, tooSoon{}} },
		"it knows none":        func(c net.Conn) net.Conn { return timelessConn{c, &now, errTooSoon} },
		"it has what it needs": func(c net.Conn) net.Conn { return c },
	} {
		t.Run(name, func(t *testing.T) {
			now.Store(false)
			talking(t, &talk{wrapping: wrapping}, func(t *testing.T, c *pin.Conn) {
				now.Store(true)
				deaf, spoilt := try(t.Context(), c)
				if want := name != "it has what it needs"; spoilt != want || errors.Is(deaf, pin.ErrDeaf) != want || errors.Is(deaf, errTooSoon) != want {
					t.Errorf("deaf: %v, spoilt %t", deaf, spoilt)
				}
				c.Discard(true, true)
			})
		})
	}
}

// The trial ends the wait by closing the connection, as one through ssh needs it.
func TestAConnectionOfPgxThatIgnoresItsDeadlinesIsNotWaitedOnAndDiscarded(t *testing.T) {
	var now atomic.Bool
	talking(t, &talk{wrapping: func(c net.Conn) net.Conn { return timelessConn{c, &now, nil} }}, func(t *testing.T, c *pin.Conn) {
		now.Store(true)
		began := time.Now()
		if deaf, spoilt := try(t.Context(), c); !errors.Is(deaf, pin.ErrDeaf) || !spoilt {
			t.Errorf("deaf: %v, spoilt %t", deaf, spoilt)
		}
		if !c.Discard(true, true) || time.Since(began) > time.Second {
			t.Errorf("the connection was not closed within %v", time.Since(began))
		}
	})
}

// pgx may change: then its connections are not waited on.
func TestOnlyAWholeConnectionOfPgxIsTakenForOne(t *testing.T) {
	var none *stdlib.Conn
	for name, conn := range map[string]any{"none": none, "an empty one": &stdlib.Conn{}, "its driver": &stdlib.Driver{}, "no pointer": stdlib.Driver{}, "nil": nil} {
		if w := pgxOf(conn); w != nil {
			t.Errorf("%s: got %v", name, w)
		}
	}
}

// An error of the network ends no check: see Before.
func TestAConnectionOfPgxThatBreaksInATrialIsSpoilt(t *testing.T) {
	var now atomic.Bool
	reset := &net.OpError{Op: "read", Err: errors.New("connection reset")}
	talking(t, &talk{wrapping: func(c net.Conn) net.Conn { return hastyConn{c, &now, reset} }}, func(t *testing.T, c *pin.Conn) {
		now.Store(true)
		if deaf, spoilt := try(t.Context(), c); !errors.Is(deaf, reset) || !errors.Is(deaf, pin.ErrDeaf) || !spoilt {
			t.Errorf("deaf: %v, spoilt %t", deaf, spoilt)
		}
		c.Discard(true, true)
	})
}

// What likePgx embeds is as pgx has it.
type (
	likeStdlib[C any] struct{ conn *C }
	likePgx           struct{}
	likePgConn        struct{}
)

func (s likeStdlib[C]) Conn() *C                                  { return s.conn }
func (likePgx) PgConn() *likePgConn                               { return &likePgConn{} }
func (likePgx) WaitForNotification(context.Context) (*int, error) { return nil, nil }
func (*likePgConn) Conn() net.Conn                                { return nil }

type (
	noWire        struct{ likePgx }
	noWait        struct{}
	noArgument    struct{ likePgx }
	otherArgument struct{ likePgx }
	noResult      struct{ likePgx }
	otherResult   struct{ likePgx }
)

func (noWire) PgConn() *int                                        { return new(int) }
func (noWait) PgConn() *likePgConn                                 { return &likePgConn{} }
func (noArgument) WaitForNotification() (*int, error)              { return nil, nil }
func (otherArgument) WaitForNotification(int) (*int, error)        { return nil, nil }
func (noResult) WaitForNotification(context.Context) error         { return nil }
func (otherResult) WaitForNotification(context.Context) (int, int) { return 0, 0 }

func TestAConnectionOfPgxWithOtherMethodsIsNotWaitedOn(t *testing.T) {
	if waiterBelow(reflect.ValueOf(&likeStdlib[likePgx]{&likePgx{}})) == nil {
		t.Error("the one with all methods is not waited on")
	}
	for name, conn := range map[string]any{
		"it has no connection":          &likeStdlib[likePgx]{},
		"its connection is no net.Conn": &likeStdlib[noWire]{&noWire{}},
		"it cannot be waited on":        &likeStdlib[noWait]{&noWait{}},
		"its wait has no context":       &likeStdlib[noArgument]{&noArgument{}},
		"its wait has another argument": &likeStdlib[otherArgument]{&otherArgument{}},
		"its wait returns one value":    &likeStdlib[noResult]{&noResult{}},
		"its wait returns no error":     &likeStdlib[otherResult]{&otherResult{}},
	} {
		if w := waiterBelow(reflect.ValueOf(conn)); w != nil {
			t.Errorf("%s: got %v", name, w)
		}
	}
	if w := pgxOf(&likeStdlib[likePgx]{&likePgx{}}); w != nil {
		t.Errorf("of another package: got %v", w)
	}
}
