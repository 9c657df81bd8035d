package session

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
)

func TestAnErrorThatNoRetryMendsIsPermanent(t *testing.T) {
	server := func(learned ...func(*Source)) *Source {
		v := &Source{}
		for _, learn := range learned {
			learn(v)
		}
		return v
	}
	primary, passed := func(v *Source) { v.ReachedPrimary() }, func(v *Source) { v.Passed(Finding{}) }
	inSessions := func(v *Source) { v.Scope = SessionScope }
	for _, c := range []struct {
		of   *Source
		err  error
		want bool
	}{
		{server(), pgerr.ErrSessionPooled, true},
		{server(), pgerr.ErrNoAdvisoryLocks, true},
		{server(), pgerr.ErrPoolTooSmall, true},
		{server(inSessions), pgerr.ErrNoSessionLocks, true},
		{server(), pgerr.ErrNoSessionLocks, false}, // Auto goes on in transactions
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
			t.Errorf("refused after %v (was primary: %t, has passed: %t): %t", c.err, c.of.met.Load() >= aPrimary, c.of.HasPassed(), got)
		}
	}
	if server().Refuses(nil) || server().Refuses(errors.New("another")) {
		t.Error("another error is permanent")
	}
}

// Where there is no tcp_user_timeout (macOS, the BSDs) the kernel ends a connection after the
// last probe: not while its leader may believe.
func TestKeepalivesEndNoSessionBeforeItsLease(t *testing.T) {
	const maxTCP = 32767 // Linux: MAX_TCP_KEEPIDLE, MAX_TCP_KEEPINTVL
	for length := time.Second; length <= 24*time.Hour; length = length*11/10 + time.Millisecond {
		set := map[string]int{}
		for _, one := range settings("", lease.Lease{Length: length, Heartbeat: min(length/5, 30*time.Second)}) {
			set[one.Name], _ = strconv.Atoi(one.Value)
		}
		idle, interval, count := set["tcp_keepalives_idle"], set["tcp_keepalives_interval"], set["tcp_keepalives_count"]
		if min(idle, interval, count) < 1 || max(idle, interval) > maxTCP {
			t.Errorf("lease %v: %d s idle, %d times %d s: 0 is the system's own", length, idle, count, interval)
		}
		if ends := time.Duration(idle+count*interval) * time.Second; ends < length || ends > max(length+time.Second, 4*time.Second) {
			t.Errorf("lease %v: the connection is cut after %v", length, ends)
		}
	}
}

func leaseOf(length, heartbeat, drain time.Duration) lease.Lease {
	return lease.Lease{Length: length, Heartbeat: heartbeat, Drain: drain}
}

// The statements repeat the constants, which other versions of the library know too.
func TestClassesOfLocksAreHashesOfTheirNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		class int
		used  []string
	}{
		{"lease", leaseClass, []string{db.TryLock, db.PrepareWait, db.Holder, db.AdvisoryLocks}},
		{"lease in transaction", leaseClassInside, []string{db.TryTransactionLock, db.PrepareWait, db.Holder, db.AdvisoryLocks}},
		{"since", sinceClass, []string{db.Confirm, db.TryTransactionLock, db.TryInTransaction, db.Holder, db.AdvisoryLocks}},
	} {
		sum := sha256.Sum256([]byte("pgelector " + c.name))
		if want := binary.BigEndian.Uint32(sum[:]) &^ (1 << 31); uint32(c.class) != want {
			t.Errorf("%s is %d, want %d", c.name, c.class, want)
		}
		for _, text := range c.used {
			if !strings.Contains(text, fmt.Sprint(c.class)) {
				t.Errorf("%s is not in %s", c.name, text)
			}
		}
	}
}

func TestNothingIsKeptOfAPoolWithoutSessions(t *testing.T) {
	pool := &sql.DB{}
	all := sessions{of: map[*sql.DB]map[*Session]bool{}}
	one, two := &Session{}, &Session{}
	leaveOne, leaveTwo := all.join(pool, one), all.join(pool, two)
	for _, c := range []struct {
		leave func()
		left  int
	}{{func() {}, 2}, {leaveOne, 1}, {leaveTwo, 0}} {
		if c.leave(); len(all.of[pool]) != c.left {
			t.Errorf("%d sessions, want %d", len(all.of[pool]), c.left)
		}
	}
	if len(all.of) > 0 {
		t.Errorf("kept %v", all.of)
	}
}

// A checker uses transactions once session scope is suspected not to work.
type checker struct{ NoPart }

func (checker) Check(_ context.Context, from *Source) error {
	if from.Suspected {
		from.UseTransactions(true)
	}
	return nil
}

func TestWhereLocksOfSessionsAreStubsAutoTriesTransactionsAtOnce(t *testing.T) {
	for scope, want := range map[Scope]error{Auto: nil, SessionScope: pgerr.ErrNoSessionLocks} {
		pool := (&drivertest.Driver{}).Open()
		from := NewSource(pool, Config{Scope: scope, Parts: Parts{checker{}}})
		err := from.Retry(t.Context(), func() error {
			if from.InTransaction() {
				return nil
			}
			return pgerr.ErrNoSessionLocks
		})
		if err != want {
			t.Errorf("scope %v: got %v, want %v", scope, err, want)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}
}
