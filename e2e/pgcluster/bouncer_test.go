//go:build unix

package pgcluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// bounced starts a pgbouncer. Clients use the simple protocol, which works in every mode.
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
		t.Error("two clients have backends of their own")
	}
}

func TestStatementModeRefusesTransactions(t *testing.T) {
	conn := connect(t, bounced(t, shared.Get(t), Statement).DSN(simple))
	if _, err := conn.Exec(t.Context(), "BEGIN"); err == nil {
		t.Error("BEGIN succeeded")
	}
}

func TestEveryRoleAndDatabaseMayUseTheBouncer(t *testing.T) {
	c := shared.Get(t)
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

func TestBouncerFailureShowsWhatItSaid(t *testing.T) {
	if _, err := findBouncer(); err != nil {
		t.Skip(err)
	}
	_, err := shared.Get(t).Bouncer(t.Context(), "fantasy")
	if err == nil || !strings.Contains(err.Error(), "fantasy") {
		t.Errorf("got error %v", err)
	}
}

func TestTheEndOfABouncerIsTold(t *testing.T) {
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
		t.Error("the one that runs now is said to have ended")
	default:
	}
	check(t, b.Stop())
	<-b.Ended()
}
