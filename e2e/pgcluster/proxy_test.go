//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"io"
	"net"
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

func TestProxyPassesEverythingOn(t *testing.T) {
	conn := connect(t, proxied(t).DSN(WithParam("application_name", "by proxy")))
	if got := ask[string](t, conn, "SELECT repeat('x', 10000000)"); len(got) != 10_000_000 {
		t.Errorf("got %d bytes", len(got))
	}
	if got := ask[string](t, conn, "SHOW application_name"); got != "by proxy" {
		t.Errorf("application_name is %q", got)
	}
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

func TestHealDeliversTheBytesThatTheBlackHoleHeldBack(t *testing.T) {
	p := proxied(t)
	conn := connect(t, p.DSN())
	p.BlackHole()
	healed := time.AfterFunc(100*time.Millisecond, p.Heal)
	defer healed.Stop()
	began := time.Now()
	if got := ask[int](t, conn, "SELECT 42"); got != 42 {
		t.Errorf("got %d", got)
	}
	if took := time.Since(began); took < 90*time.Millisecond {
		t.Errorf("the answer came after %v, through the black hole", took)
	}
	ask[int](t, connect(t, p.DSN()), "SELECT 1")
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

func TestLeadToRedirectsNewConnections(t *testing.T) {
	other := own(t)
	p := proxied(t)
	port := func() int { return ask[int](t, connect(t, p.DSN()), "SELECT current_setting('port')::int") }
	old := connect(t, p.DSN())
	p.LeadTo(other)
	if got := port(); got != other.Port() {
		t.Errorf("a new connection reaches port %d, want %d", got, other.Port())
	}
	p.LeadTo(nil)
	if conn, err := pgx.Connect(t.Context(), p.DSN()); err == nil {
		t.Errorf("a connection that leads nowhere is %v", conn)
	}
	p.LeadTo(shared.Get(t))
	if got := port(); got != shared.Get(t).Port() {
		t.Errorf("a new connection reaches port %d, want %d", got, shared.Get(t).Port())
	}
	ask[int](t, old, "SELECT 1")
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

func TestProxyOutlivesARestartOfTheServer(t *testing.T) {
	c := own(t)
	p, err := c.Proxy(t.Context())
	check(t, err)
	check(t, c.Shutdown(t.Context(), Fast))
	if _, err := pgx.Connect(t.Context(), p.DSN()); err == nil {
		t.Error("connected to a server that is down")
	}
	check(t, c.Resume(t.Context()))
	ask[int](t, connect(t, p.DSN()), "SELECT 1")
}

func TestClosedProxyRefusesConnections(t *testing.T) {
	p := proxied(t)
	idle, err := net.Dial("tcp4", p.Addr())
	check(t, err)
	defer idle.Close()
	p.BlackHole()
	check(t, p.Close())
	check(t, p.Close())
	if _, err := io.ReadAll(idle); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the open connection got error %v", err)
	}
	if _, err := net.Dial("tcp4", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection got error %v", err)
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
