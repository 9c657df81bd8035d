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
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/pgelector/pgelector/db"
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
	primary, passed := func(v *Source) { v.primary.Store(true) }, func(v *Source) { v.passed.Store(true) }
	for _, c := range []struct {
		of   *Source
		err  error
		want bool
	}{
		{server(), pgerr.ErrSessionPooled, true},
		{server(), pgerr.ErrNoAdvisoryLocks, true},
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
			t.Errorf("refused after %v (was primary: %t, has passed: %t): %t", c.err, c.of.primary.Load(), c.of.passed.Load(), got)
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

// bothDrivers returns the errors with which the drivers report an SQLSTATE.
func bothDrivers(state string) []error {
	return []error{&pgconn.PgError{Code: state}, &pq.Error{Code: pqerror.Code(state)}}
}

func TestRefusesSettingRecognisesErrorsOfTheSettingOnly(t *testing.T) {
	for state, refused := range map[string]bool{
		"22023": true, "42501": true, "55P02": true, "0A000": true, "42704": true,
		"42P05": false, "26000": false, "08P01": false, "57P01": false, "57014": false, "53300": false, "25006": false,
	} {
		for _, err := range bothDrivers(state) {
			if refusesSetting(err) != refused {
				t.Errorf("refusesSetting(%v) = %v", err, !refused)
			}
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
		{"bell", Bell, []string{db.Ping, db.Ring, db.Requests}},
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

// checks lets n candidates of a pool check the server at the same time. A check takes a second.
// It counts the checks that were made and those that failed.
func checks(n int, check func() (bool, error), leases ...lease.Lease) (made, failed int) {
	all := queues{of: map[*sql.DB]*queue{}}
	ended := make(chan error)
	for i := range n {
		go func() {
			_, err := all.share(context.Background(), nil, leases[i%len(leases)], func() (finding, error) {
				made++ // one at a time
				time.Sleep(time.Second)
				whole, err := check()
				return finding{whole: whole}, err
			})
			ended <- err
		}()
	}
	for range n {
		if err := <-ended; err != nil {
			failed++
		}
	}
	if len(all.of) > 0 {
		failed = -1
	}
	return made, failed
}

func TestCandidatesThatWaitForTheirTurnShareACheckThatPassedMeanwhile(t *testing.T) {
	one := lease.Lease{Length: 10 * time.Second}
	for name, c := range map[string]struct {
		whole        bool
		err          error
		made, failed int
	}{
		"it passed":                   {true, nil, 2, 0}, // the first made one, and one of those that came after it had begun made the other
		"it failed":                   {true, errors.New("refused"), 40, 40},
		"it passed without a setting": {false, nil, 40, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made, failed := checks(40, func() (bool, error) { return c.whole, c.err }, one)
				if made != c.made || failed != c.failed {
					t.Errorf("%d checks and %d failures, want %d and %d", made, failed, c.made, c.failed)
				}
			})
		})
	}
}

// A candidate that comes after the first has left waits for the second.
func TestThereIsOneQueueWhileAnybodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := queues{of: map[*sql.DB]*queue{}}
		ended := make(chan error)
		checking := 0
		for i := range 3 {
			go func() {
				time.Sleep(time.Duration(i) * 700 * time.Millisecond)
				_, err := all.share(context.Background(), nil, lease.Lease{}, func() (finding, error) {
					if checking++; checking > 1 {
						t.Errorf("%d checks at a time", checking)
					}
					time.Sleep(time.Second)
					checking--
					return finding{}, nil
				})
				ended <- err
			}()
		}
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAPoolIsForgottenWhenTheLastWhoWaitsGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := queues{of: map[*sql.DB]*queue{}}
		_, leave, err := all.alone(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := all.alone(hurried, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if leave(); len(all.of) > 0 {
			t.Error("the pool is remembered")
		}
	})
}

func TestACheckWithAnotherLeaseIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made, _ := checks(40, func() (bool, error) { return true, nil }, lease.Lease{Length: 10 * time.Second}, lease.Lease{Length: 20 * time.Second})
		if made < 3 { // the number depends on the order in which candidates come
			t.Errorf("%d checks, with two leases", made)
		}
	})
}

func TestACheckThatBeganBeforeIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := queues{of: map[*sql.DB]*queue{}}
		made := 0
		for range 3 {
			_, err := all.share(t.Context(), nil, lease.Lease{}, func() (finding, error) {
				made++
				time.Sleep(time.Second)
				return finding{whole: true}, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		if made != 3 {
			t.Errorf("%d of 3 checks were made", made)
		}
	})
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

// A pooler that has begun a transaction permits them, and one that did not answer may be full.
func TestOnlyRefusalsInARowShowThatAPoolerPermitsNoTransactions(t *testing.T) {
	const every = 3 * time.Second
	refusal := bothDrivers("08P01")[0]
	for name, c := range map[string]struct {
		errs    []error // of BEGIN, one every three seconds
		refused bool
	}{
		"four in nine seconds": {[]error{refusal, driver.ErrBadConn, refusal, refusal}, false},
		"five in twelve":       {[]error{driver.ErrBadConn, refusal, refusal, refusal, refusal}, true},
		"one begins":           {[]error{refusal, refusal, nil, refusal, refusal, refusal, refusal}, false},
		"one has no answer":    {[]error{refusal, refusal, pgerr.ErrNoAnswer, refusal, refusal, refusal, refusal}, false},
		"five after one":       {[]error{nil, refusal, refusal, refusal, refusal, refusal}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &Source{}
				var err error
				for _, one := range c.errs {
					if err = v.permits(one); one == nil && err != nil || !errors.Is(err, one) {
						t.Errorf("got %v", err)
					}
					time.Sleep(every)
				}
				if errors.Is(err, pgerr.ErrSessionPooled) != c.refused {
					t.Errorf("got %v", err)
				}
			})
		})
	}
	t.Run("a hundred at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v := &Source{}
			for range 100 {
				if err := v.permits(refusal); errors.Is(err, pgerr.ErrSessionPooled) {
					t.Fatal(err)
				}
			}
		})
	})
}
