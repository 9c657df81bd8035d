package election_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/idle"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

func TestAnErrorThatNoRetryMendsIsPermanent(t *testing.T) {
	server := func(learned ...func(*election.Source)) *election.Source {
		pool := new(drivertest.Driver).Open()
		t.Cleanup(func() { _ = pool.Close() })
		from := election.NewSource(pool, election.SessionConfig{Lease: lease.Lease{Length: time.Minute}})
		for _, learn := range learned {
			learn(from)
		}
		return from
	}
	passed := func(from *election.Source) { _ = from.Retry(t.Context(), func() error { return nil }) }
	primary := (*election.Source).ReachedPrimary
	for _, c := range []struct {
		of   *election.Source
		err  error
		want bool
	}{
		{server(), pgerr.ErrSessionPooled, true},
		{server(), pgerr.ErrNoAdvisoryLocks, true},
		{server(), pgerr.ErrNoSessionLocks, true},
		{server(), pgerr.ErrPoolTooSmall, true},
		{server(), pgerr.ErrServerTooOld, true},
		{server(), pgerr.ErrServerReadOnly, true},
		{server(), pgerr.ErrSessionLost, false},
		{server(), pgerr.ErrLeaseExpired, false},
		{server(), context.Canceled, false},
		{server(), driver.ErrBadConn, false},
		{server(primary), pgerr.ErrServerReadOnly, false},
		{server(primary), pgerr.ErrSessionPooled, true},
		{server(primary, passed), pgerr.ErrSessionPooled, false},
		{server(primary, passed), pgerr.ErrNoAdvisoryLocks, true},
		{server(primary, passed), pgerr.ErrPoolTooSmall, true},
		{server(primary, passed), pgerr.ErrServerTooOld, true},
	} {
		if got := c.of.Refuses(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
			t.Errorf("refused after %v (has passed: %t): %t", c.err, c.of.HasPassed(), got)
		}
	}
	if server().Refuses(nil) || server().Refuses(errors.New("another")) {
		t.Error("another error is permanent")
	}
}

// What a server refuses is left out until the next check, and nothing else.
func TestSettingsThatAreLeftOutComeBack(t *testing.T) {
	from := election.NewSource(nil, sessions("a"))
	all := len(from.Settings())
	from.LeaveOut("jit", "tcp_user_timeout")
	if n := len(from.Settings()); n != all-2 {
		t.Errorf("%d of %d settings are left", n, all)
	}
	from.LeaveOut("jit")
	if n := len(from.Settings()); n != all-1 {
		t.Errorf("%d of %d settings are left", n, all)
	}
	if from.LeaveOut(); len(from.Settings()) != all {
		t.Errorf("%d of %d settings are left", len(from.Settings()), all)
	}
}

// The statements repeat the classes of locks, which other versions of the library know too.
func TestClassesOfLocksAreHashesOfTheirNames(t *testing.T) {
	for name, used := range map[string][]string{
		"lease":                {db.TryElection, db.TryLock, db.PrepareWait, db.Holder, db.AdvisoryLocks},
		"lease in transaction": {db.TryTransactionLock, db.PrepareWait, db.Holder, db.AdvisoryLocks},
		"since":                {db.ConfirmElection, db.Confirm, db.TryTransactionLock, db.TryInTransaction, db.Holder, db.AdvisoryLocks},
		"priority":             {db.TellPriority, db.Holder, db.AdvisoryLocks},
	} {
		sum := sha256.Sum256([]byte("pgelector " + name))
		class := binary.BigEndian.Uint32(sum[:]) &^ (1 << 31)
		for _, text := range used {
			if !strings.Contains(text, fmt.Sprint(class)) {
				t.Errorf("%s, %d, is not in %s", name, class, text)
			}
		}
	}
}

// lends lends a session, or fails.
func lends(ctx context.Context, pool *sql.DB, l lease.Lease) (*election.Session, error) {
	return election.NewSource(pool, election.SessionConfig{Lease: l}).Lend(ctx)
}

func TestALateConnectionReturnsToThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		pool := (&drivertest.Driver{Connecting: drivertest.Late(late)}).Open()
		defer pool.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := lends(ctx, pool, lease.Lease{Length: time.Minute})
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "within") || time.Since(began) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		close(late)
		synctest.Wait()
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use", n)
		}
	})
}

// A connection of pgx may hang when it is taken from the pool again, because it sends a statement then,
// and the server may be frozen.
func TestAnIdleConnectionMayHangForOneValidity(t *testing.T) {
	for _, l := range []lease.Lease{{Length: 10 * time.Second}, {Length: time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			pool := (&drivertest.Driver{Reset: func(ctx context.Context) error {
				<-ctx.Done()
				return driver.ErrBadConn
			}}).Open()
			defer pool.Close()
			conn, err := pool.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			began := time.Now()
			_, err = lends(t.Context(), pool, l)
			if took, want := time.Since(began), min(l.Validity(), idle.AnswerWithin); err == nil || took != want {
				t.Errorf("got %v after %v, want an error after %v", err, took, want)
			}
			s, err := lends(t.Context(), pool, l)
			if err != nil {
				t.Fatalf("a new connection: %v", err)
			}
			s.GiveBack()
		})
	}
}

// Opening a connection may take longer than a validity. A pool that is full opens none.
func TestANewConnectionHasHalfAMinute(t *testing.T) {
	const connectTimeout = 30 * time.Second
	l := lease.Lease{Length: 10 * time.Second}
	for name, c := range map[string]struct {
		most, inUse int
		want        time.Duration
	}{"no limit": {0, 1, connectTimeout}, "room": {2, 1, connectTimeout}, "full": {1, 1, l.Validity()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs := make(chan struct{})
				d := &drivertest.Driver{}
				pool := d.Open()
				pool.SetMaxOpenConns(c.most)
				for range c.inUse {
					conn, err := pool.Conn(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
				}
				defer pool.Close()
				d.Connecting = drivertest.Late(hangs)
				began := time.Now()
				if _, err := lends(t.Context(), pool, l); err == nil || strings.Contains(err.Error(), "MaxOpenConns large") != (name == "full") {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took < c.want || took > c.want+pin.CloseGrace {
					t.Errorf("it gave up after %v, want %v", took, c.want)
				}
				close(hangs)
			})
		})
	}
}

// database/sql can ask any driver.
func TestASessionOfADriverWithoutDirectStatementsIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := new(drivertest.Driver).Open()
		defer pool.Close()
		s, err := lends(t.Context(), pool, lease.Lease{Length: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if s.Fail(errors.New("enough")); pool.Stats().OpenConnections != 0 {
			t.Error("the connection is open")
		}
	})
}

// What goes on beside a session reads the settings while a check leaves some out. (The race detector sees it.)
func TestTheSettingsMayBeReadDuringACheck(t *testing.T) {
	from := election.NewSource(nil, election.SessionConfig{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			from.LeaveOut("jit")
		}
	}()
	for range 100 {
		if all := from.Settings(); len(all) == 0 {
			t.Error("no settings")
		}
	}
	<-done
}
