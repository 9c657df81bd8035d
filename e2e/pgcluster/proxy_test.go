//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func proxied(t *testing.T) *Proxy {
	t.Helper()
	p, err := shared.Get(t).Proxy(t.Context())
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	return p
}

func TestABlackHoleStopsOldAndNewConnections(t *testing.T) {
	p := proxied(t)
	old := connect(t, p.DSN())
	p.BlackHole()
	silent(t, old)

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if conn, err := pgx.Connect(ctx, p.DSN()); err == nil || ctx.Err() == nil {
		t.Fatalf("a new connection was not left waiting: %v, error %v", conn, err)
	}
}

func TestABlackHoleHidesAClosedClientFromTheServer(t *testing.T) {
	p := proxied(t)
	conn := connect(t, p.DSN(WithParam("application_name", "hangs up")))
	admin := connect(t, shared.Get(t).DSN())
	sessions := func() int {
		return ask[int](t, admin, "SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'hangs up'")
	}
	p.BlackHole()
	conn.PgConn().Conn().Close()
	time.Sleep(100 * time.Millisecond)
	if sessions() != 1 {
		t.Error("the server ended the session")
	}
	p.Heal()
	eventually(t, 5*time.Second, "the server ends the session after Heal", func() bool { return sessions() == 0 })
}

func TestResetBreaksConnectionsWithRST(t *testing.T) {
	for _, name := range []string{"healthy", "black hole"} {
		t.Run(name, func(t *testing.T) {
			p := proxied(t)
			conn := connect(t, p.DSN())
			if name == "black hole" {
				p.BlackHole()
			}
			p.Reset()
			if _, err := conn.PgConn().Conn().Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got error %v, want a connection reset", err)
			}
			p.Heal()
			ask[int](t, connect(t, p.DSN()), "SELECT 1")
		})
	}
}

func TestSlowDelaysEachDirection(t *testing.T) {
	p := proxied(t)
	conn := connect(t, p.DSN())
	roundTrip := func() time.Duration {
		began := time.Now()
		check(t, conn.Ping(t.Context()))
		return time.Since(began)
	}
	p.Slow(time.Second, 0)
	p.Slow(50*time.Millisecond, 5*time.Millisecond) // replaces the first
	if took := roundTrip(); took < 90*time.Millisecond || took > 900*time.Millisecond {
		t.Errorf("a round trip took %v, want about 100 ms", took)
	}
	p.Heal()
	soonest := roundTrip()
	for range 4 { // a busy machine may delay some
		soonest = min(soonest, roundTrip())
	}
	if soonest > 90*time.Millisecond {
		t.Errorf("after Heal five round trips took %v and more", soonest)
	}
}

// bounced starts a pgbouncer. The tests use the simple protocol, which works in every mode.
func bounced(t *testing.T, c *Cluster, mode PoolMode, opts ...BouncerOption) *Bouncer {
	t.Helper()
	b, err := c.Bouncer(t.Context(), mode, opts...)
	if errors.Is(err, ErrNoBouncer) {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { check(t, b.Stop()) })
	return b
}

var simple = WithParam("default_query_exec_mode", "simple_protocol")

func backend(t *testing.T, conn *pgx.Conn) int { return ask[int](t, conn, "SELECT pg_backend_pid()") }

func TestSessionModeGivesEachClientItsBackend(t *testing.T) {
	b := bounced(t, shared.Get(t), Session)
	one, two := connect(t, b.DSN(simple)), connect(t, b.DSN(simple))
	if backend(t, one) == backend(t, two) {
		t.Error("two clients share a backend")
	}
}

func TestTransactionModeSharesABackendBetweenClients(t *testing.T) {
	b := bounced(t, shared.Get(t), Transaction, WithPoolSize(1))
	one, two := connect(t, b.DSN(simple)), connect(t, b.DSN(simple))
	if backend(t, one) != backend(t, two) {
		t.Error("two clients have different backends")
	}
}

func TestStatementModeRefusesTransactions(t *testing.T) {
	conn := connect(t, bounced(t, shared.Get(t), Statement).DSN(simple))
	if _, err := conn.Exec(t.Context(), "BEGIN"); err == nil {
		t.Error("BEGIN succeeded")
	}
}

func TestEveryRoleAndDatabaseMayUseTheBouncer(t *testing.T) {
	c := own(t)
	check(t, c.CreateRole(t.Context(), "bounced", nil))
	check(t, c.CreateDatabase(t.Context(), "bounced"))
	b := bounced(t, c, Transaction)
	conn := connect(t, b.DSN(simple, ForRole("bounced"), ForDatabase("bounced"),
		WithParam("statement_timeout", "1000"), WithParam("application_name", "x")))
	if got := ask[string](t, conn, "SELECT current_user || '@' || current_database()"); got != "bounced@bounced" {
		t.Errorf("got %s", got)
	}
}

func TestBouncerRestartBreaksConnectionsAndKeepsItsPort(t *testing.T) {
	b := bounced(t, shared.Get(t), Session)
	conn := connect(t, b.DSN(simple))
	check(t, b.Restart(t.Context()))
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the connection survived")
	}
	ask[int](t, connect(t, b.DSN(simple)), "SELECT 1")
}

func TestAFailedBouncerReportsItsLog(t *testing.T) {
	if _, err := findBouncer(); err != nil {
		t.Skip(err)
	}
	_, err := shared.Get(t).Bouncer(t.Context(), "fantasy")
	if err == nil || !strings.Contains(err.Error(), "fantasy") {
		t.Errorf("got error %v", err)
	}
}

func TestEndedIsClosedWhenTheBouncerEnds(t *testing.T) {
	b, err := own(t).Bouncer(t.Context(), Session)
	if errors.Is(err, ErrNoBouncer) {
		t.Skip(err)
	}
	check(t, err)
	first := b.Ended()
	check(t, b.Restart(t.Context()))
	<-first
	select {
	case <-b.Ended():
		t.Error("the channel of the current process is closed")
	default:
	}
	check(t, b.Stop())
	<-b.Ended()
}
