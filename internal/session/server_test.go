package session

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"github.com/pgelector/pgelector/db"
)

func TestAnErrorThatNoRetryMendsIsPermanent(t *testing.T) {
	server := func(learned ...func(*Server)) *Server {
		v := &Server{}
		for _, learn := range learned {
			learn(v)
		}
		return v
	}
	primary, passed := func(v *Server) { v.primary.Store(true) }, func(v *Server) { v.passed.Store(true) }
	for _, c := range []struct {
		of   *Server
		err  error
		want bool
	}{
		{server(), ErrSessionPooled, true},
		{server(), ErrNoAdvisoryLocks, true},
		{server(), ErrPoolTooSmall, true},
		{server(), ErrServerTooOld, true},
		{server(), ErrServerReadOnly, true},
		{server(), ErrSessionLost, false},
		{server(), ErrLeaseExpired, false},
		{server(), context.Canceled, false},
		{server(), driver.ErrBadConn, false},
		{server(primary), ErrServerReadOnly, false},
		{server(primary), ErrSessionPooled, true},
		{server(primary, passed), ErrSessionPooled, false},
		{server(primary, passed), ErrNoAdvisoryLocks, true},
		{server(primary, passed), ErrPoolTooSmall, true},
		{server(primary, passed), ErrServerTooOld, true},
	} {
		if got := c.of.Refuses(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
			t.Errorf("refused after %v (was primary: %t, has passed: %t): %t", c.err, c.of.primary.Load(), c.of.passed.Load(), got)
		}
	}
	if server().Refuses(nil) || server().Refuses(errors.New("another")) {
		t.Error("another error is permanent")
	}
}

// bothDrivers returns the errors with which the drivers report an SQLSTATE.
func bothDrivers(state string) []error {
	return []error{&pgconn.PgError{Code: state}, &pq.Error{Code: pqerror.Code(state)}}
}

func TestExplainNamesThePoolerAndKeepsTheDriversError(t *testing.T) {
	for state, pooled := range map[string]bool{"42P05": true, "26000": true, "08P01": false, "57P01": false, "42601": false} {
		for _, err := range bothDrivers(state) {
			got := Explain(err)
			if errors.Is(got, ErrSessionPooled) != pooled || !errors.Is(got, err) {
				t.Errorf("Explain(%v) = %v", err, got)
			}
		}
	}
	if again := Explain(Explain(bothDrivers("26000")[0])); again.Error() != Explain(bothDrivers("26000")[0]).Error() {
		t.Errorf("explained twice: %v", again)
	}
}

func TestExplainNamesTheFullLockTable(t *testing.T) {
	for _, err := range bothDrivers("53200") {
		if got := Explain(err); !errors.Is(got, ErrLockTableFull) || !errors.Is(got, err) {
			t.Errorf("Explain(%v) = %v", err, got)
		}
	}
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

func TestTheClockThatSaysMoreCounts(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct{ mono, wall, want time.Duration }{
		"both clocks run":                      {3 * s, 3 * s, 3 * s},
		"the wall clock is set forward":        {3 * s, 3*s + time.Hour, 3*s + time.Hour},
		"the wall clock is set back":           {3 * s, 3*s - time.Hour, 3 * s},
		"the machine slept, monotonic stopped": {3 * s, 8 * time.Hour, 8 * time.Hour},
		"the wall clock stands still":          {3 * s, 0, 3 * s},
		"no time has passed":                   {0, 0, 0},
	} {
		earlier := now()
		later := instant{mono: earlier.mono + c.mono, wall: earlier.wall + c.wall}
		if got := later.since(earlier); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestNowReadsBothClocks(t *testing.T) {
	a := now()
	time.Sleep(2 * time.Millisecond)
	b := now()
	if d := b.since(a); d < 2*time.Millisecond || d > time.Minute {
		t.Errorf("%v passed", d)
	}
	if b.mono <= a.mono || b.wall <= a.wall || b.wall != time.Duration(b.at.UnixNano()) {
		t.Errorf("got %+v, then %+v", a, b)
	}
}

// After a freeze of the process or a sleep of the machine, one of the clocks shows that the
// validity is over.
func TestASessionIsNotValidAfterAClockJump(t *testing.T) {
	l := leaseOf(10*time.Second, 2*time.Second, 2*time.Second)
	for name, c := range map[string]struct {
		mono, wall time.Duration // by how much the proof is older
		valid      bool
	}{
		"fresh":                          {0, 0, true},
		"not quite expired":              {6 * time.Second, 6 * time.Second, true},
		"expired":                        {7 * time.Second, 7 * time.Second, false},
		"only by the monotonic clock":    {7 * time.Second, 0, false},
		"only by the wall clock":         {0, 7 * time.Second, false},
		"the wall clock was set back":    {time.Second, -time.Hour, true},
		"the wall clock was set forward": {time.Second, time.Hour, false},
	} {
		s := &Session{lease: l, ctx: t.Context()}
		proof := now()
		proof.mono -= c.mono
		proof.wall -= c.wall
		s.renew(proof)
		if s.Valid() != c.valid {
			t.Errorf("%s: valid %v, %v left", name, s.Valid(), s.left())
		}
	}
}

func leaseOf(length, heartbeat, drain time.Duration) Lease {
	return Lease{Length: length, Heartbeat: heartbeat, Drain: drain}
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

// Package e2e/protocol checks the other vectors of that page.
func TestTheKeyOfCommitsIsThatOfTheProtocol(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	high, low := Halves(purposeKey("commit", hashKey("pgelector:orders")))
	if row := fmt.Sprintf("\n%-22s %d, %d\n", "commit", high, low); !strings.Contains(string(page), row) {
		t.Errorf("the page lacks%s", row)
	}
}
