package listen

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/live"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pool makes one connection.
type pool struct{ conn driver.Conn }

func (p pool) Connect(context.Context) (driver.Conn, error) { return p.conn, nil }
func (p pool) Driver() driver.Driver                        { return nil }

// trying runs a test in virtual time with a connection, which is made there.
func trying(t *testing.T, conn func() driver.Conn, test func(t *testing.T, c *pin.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(pool{conn()})
		defer db.Close()
		c, _, err := pin.Take(t.Context(), db, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		test(t, c)
	})
}

// A bareConn cannot be waited on.
type bareConn struct{}

func (bareConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (bareConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (bareConn) Close() error                        { return nil }

// An idleConn waits until the wait is ended.
type idleConn struct{ bareConn }

func (idleConn) WaitForEnd(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// A stuckConn cannot be waited on: the wait does not end before the connection is closed.
type stuckConn struct {
	bareConn
	closed chan struct{}
}

func (c *stuckConn) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return nil
}

func (c *stuckConn) WaitForEnd(context.Context) error {
	<-c.closed
	return driver.ErrBadConn
}

// Wrappers, as tracing libraries have them.
type (
	byRaw     struct{ driver.Conn }
	byUnwrap  struct{ driver.Conn }
	byWrapped struct{ driver.Conn }
	sealed    struct{ driver.Conn }
)

func (w byRaw) Raw() driver.Conn             { return w.Conn }
func (w byUnwrap) Unwrap() driver.Conn       { return w.Conn }
func (w byWrapped) WrappedConn() driver.Conn { return w.Conn }

func TestAConnectionIsFoundBelowItsWrappers(t *testing.T) {
	deep := driver.Conn(idleConn{})
	for range 8 {
		deep = byRaw{deep}
	}
	for name, wrapped := range map[string]struct {
		conn driver.Conn
		deaf bool
	}{
		"none":         {idleConn{}, false},
		"Raw":          {byRaw{idleConn{}}, false},
		"Unwrap":       {byUnwrap{idleConn{}}, false},
		"WrappedConn":  {byWrapped{idleConn{}}, false},
		"three":        {byRaw{byUnwrap{byWrapped{idleConn{}}}}, false},
		"too many":     {deep, true},
		"sealed":       {sealed{idleConn{}}, true},
		"another type": {bareConn{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			trying(t, func() driver.Conn { return wrapped.conn }, func(t *testing.T, c *pin.Conn) {
				if deaf, spoilt := try(t.Context(), c); spoilt || errors.Is(deaf, pin.ErrDeaf) != wrapped.deaf {
					t.Errorf("deaf: %v, spoilt %t", deaf, spoilt)
				}
				c.GiveBack()
			})
		})
	}
}

// The trial closes the connection below the driver: otherwise it could not be discarded.
func TestAConnectionWhoseWaitDoesNotEndIsFoundInATrialAndDiscarded(t *testing.T) {
	trying(t, func() driver.Conn { return &stuckConn{closed: make(chan struct{})} }, func(t *testing.T, c *pin.Conn) {
		if deaf, spoilt := try(t.Context(), c); !errors.Is(deaf, pin.ErrDeaf) || !spoilt {
			t.Errorf("deaf: %v, spoilt %t", deaf, spoilt)
		}
		if !c.Discard(false, true) {
			t.Error("the connection was not closed")
		}
	})
}

// A mortalConn does not outlive a wait, or was dead before.
type mortalConn struct {
	idleConn
	made  int // the number of the connection
	alive func(made int, waited bool) bool

	waited bool
}

func (c *mortalConn) WaitForEnd(ctx context.Context) error {
	c.waited = true
	return c.idleConn.WaitForEnd(ctx)
}

func (c *mortalConn) Ping(context.Context) error {
	if !c.alive(c.made, c.waited) {
		return driver.ErrBadConn
	}
	return nil
}

// A mortalPool makes mortal connections.
type mortalPool struct {
	alive func(made int, waited bool) bool
	made  *int
}

func (p mortalPool) Driver() driver.Driver { return nil }
func (p mortalPool) Connect(context.Context) (driver.Conn, error) {
	*p.made++
	return &mortalConn{made: *p.made, alive: p.alive}, nil
}

// lending lends connections of the pool, and closes each of which the function returns an error.
func lending(ctx context.Context, pool *sql.DB) func(func(*pin.Conn) error) error {
	return func(use func(*pin.Conn) error) error {
		c, _, err := pin.Take(ctx, pool, time.Minute)
		if err != nil {
			return err
		}
		if err = use(c); err != nil {
			c.Discard(false, true)
			return err
		}
		c.GiveBack()
		return nil
	}
}

// ping asks the driver.
func ping(ctx context.Context, c *pin.Conn) error {
	_, err := c.Call(ctx, func(ctx context.Context, _ *db.Queries) error { return c.Ping(ctx) }, nil)
	return err
}

// A connection that breaks is not taken for one that cannot be waited on, until another one shows that.
func TestWhetherConnectionsCanBeWaitedOnIsToldByWhatIsAskedAfterwards(t *testing.T) {
	for name, c := range map[string]struct {
		alive             func(made int, waited bool) bool
		deaf, fails       bool
		connections, asks int
	}{
		"they outlive it":                {func(int, bool) bool { return true }, false, false, 1, 1},
		"they do not":                    {func(_ int, waited bool) bool { return !waited }, true, false, 2, 3},
		"the first was dead before":      {func(made int, _ bool) bool { return made > 1 }, false, false, 2, 3},
		"the server has gone":            {func(int, bool) bool { return false }, false, true, 2, 2},
		"it has gone after the first":    {func(made int, waited bool) bool { return made == 1 && !waited }, false, true, 2, 2},
		"the second breaks in its trial": {func(made int, waited bool) bool { return made > 2 || made == 2 && !waited }, true, false, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made, asks := 0, 0
				db := sql.OpenDB(mortalPool{c.alive, &made})
				defer db.Close()
				deaf, err := Before(t.Context(), lending(t.Context(), db), func(c *pin.Conn) error {
					asks++
					return ping(t.Context(), c)
				})
				if errors.Is(deaf, pin.ErrDeaf) != c.deaf || (err != nil) != c.fails || made != c.connections || asks != c.asks {
					t.Errorf("deaf: %v, %v, after %d connections and %d questions", deaf, err, made, asks)
				}
			})
		})
	}
}

// A wait that does not end costs one connection, and no election.
func TestAConnectionWhoseWaitDoesNotEndKeepsNobodyFromAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(stuckPool{})
		defer db.Close()
		began := time.Now()
		deaf, err := Before(t.Context(), lending(t.Context(), db), func(*pin.Conn) error { return nil })
		if !errors.Is(deaf, pin.ErrDeaf) || err != nil || time.Since(began) > trialBound {
			t.Errorf("deaf: %v, %v after %v", deaf, err, time.Since(began))
		}
	})
}

// A beats part counts the heartbeats of sessions.
type beats struct {
	election.NoPart
	n atomic.Int32
}

func (b *beats) Beat(*election.Session, election.Beat) error { b.n.Add(1); return nil }

// A loss that the driver tells makes the other sessions of the pool ask whether they live. An end in order tells them nothing.
func TestOnlyALossHasTheOtherSessionsOfThePoolAsk(t *testing.T) {
	for name, end := range map[string]func(*electortest.Server, *election.Session){
		"lost":   func(server *electortest.Server, s *election.Session) { server.Terminate(s.PID()) },
		"closed": func(_ *electortest.Server, s *election.Session) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := electortest.NewServer()
				defer server.Close()
				process := server.NewProcess()
				process.SetDriver(electortest.PGX)
				pool := process.Open()
				defer pool.Close()
				kept := func(key int64) (*election.Session, *beats) {
					b := &beats{}
					from := election.NewSource(pool, election.SessionConfig{CandidateID: "a",
						Lease: lease.Lease{Length: time.Minute, Heartbeat: 10 * time.Second, Drain: time.Second},
						Parts: []election.Part{b, Part{Deaf: func() error { return nil }}, live.Part{}}})
					a := election.New(from, election.Config{Key: key}).Attempt(t.Context())
					if a.Outcome != election.Granted {
						t.Fatalf("got %+v", a)
					}
					return a.Lock.Session(), b
				}
				one, _ := kept(1)
				two, beats := kept(2)
				time.Sleep(time.Second)
				end(server, one)
				time.Sleep(time.Second) // no heartbeat is due before 10 s
				if lost := errors.Is(context.Cause(one.Context()), pgerr.ErrSessionLost); lost != (name == "lost") || one.Context().Err() == nil {
					t.Errorf("ended by %v", context.Cause(one.Context()))
				}
				if asked := beats.n.Load() > 0; asked != (name == "lost") || two.Context().Err() != nil {
					t.Errorf("the other has asked: %t; ended by %v", asked, context.Cause(two.Context()))
				}
				two.Close()
			})
		})
	}
}

// A stuckPool makes stuck connections.
type stuckPool struct{}

func (stuckPool) Driver() driver.Driver { return nil }
func (stuckPool) Connect(context.Context) (driver.Conn, error) {
	return &stuckConn{closed: make(chan struct{})}, nil
}
