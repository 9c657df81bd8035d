//go:build unix

package command_test

import (
	"context"
	"database/sql"
	"strings"
	"syscall"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/roster"
)

// A standby of a program that is not Go is seen in the roster.
func TestRunPublishesItsCandidateInTheRoster(t *testing.T) {
	t.Parallel()
	c, database := shared.Get(t), unique("roster")
	check(t, c.CreateDatabase(t.Context(), database))
	dsn := c.DSN(pgcluster.ForDatabase(database))
	pool, err := sql.Open("pgx", dsn)
	check(t, err)
	defer pool.Close()
	seen, err := roster.New(pool, roster.WithSchema("who"))
	check(t, err)
	of := func(id string) (found roster.Candidate) {
		candidates, _ := seen.Candidates(context.WithoutCancel(t.Context()), keyOf(name(t))) // fails until there are tables
		for _, candidate := range candidates {
			if candidate.ID == id {
				found = candidate
			}
		}
		return found
	}
	leads := launch(t, at(dsn), quick(name(t), "--candidate", "leads", "--roster", "who", "--", "sh", "-c", "echo ready; exec sleep 1000")...)
	leads.says(t, "ready")
	follows := launch(t, at(dsn), "lead", name(t), "--candidate", "follows", "--roster", "who", "--http", freeAddress(t))
	eventually(t, "both are published", func() bool { return of("leads").Leading && of("follows").State == roster.Live })
	third := launch(t, at(dsn), "lead", name(t), "--candidate", "polls", "--standby", "poll", "--roster", "who", "--http", freeAddress(t))
	page := launch(t, at(dsn), "dashboard", "--listen", "127.0.0.1:0", "--roster", "who", name(t))
	address := strings.TrimSuffix("127.0.0.1:"+page.says(t, "http://127.0.0.1:"), "/")
	eventually(t, "one that has neither the lock nor a seat is shown", func() bool { return strings.Contains(get(t, address, "/").body, "polls") })
	for _, r := range []*running{third, page} {
		r.signal(t, syscall.SIGTERM)
		r.ends(t, 0)
	}
	names := invoke(t, at(dsn), "__complete", "status", "")
	if strings.Contains(names.out, name(t)) {
		t.Errorf("the completion reads another schema: %s", names.out)
	}
	follows.signal(t, syscall.SIGTERM)
	follows.ends(t, 0)
	if got := of("follows").State; got != roster.Left {
		t.Errorf("the one that has ended is %q", got)
	}
	invoke(t, at(dsn), "run", "--election", "x", "--roster", "pg_x", "--", "true").want(t, exit.Usage, "--roster", "pg_")
}

func TestNamesOfElectionsAreCompletedFromTheRoster(t *testing.T) {
	t.Parallel()
	c, database := shared.Get(t), unique("completed")
	check(t, c.CreateDatabase(t.Context(), database))
	dsn := c.DSN(pgcluster.ForDatabase(database))
	invoke(t, at(dsn), "__complete", "status", "").want(t, exit.OK, ":4") // no roster, no names, no files
	leads := launch(t, at(dsn), quick("billing", "--roster", "pgelector", "--", "sh", "-c", "echo ready; exec sleep 1000")...)
	leads.says(t, "ready")
	for _, asked := range [][]string{{"status"}, {"watch"}, {"resign"}, {"evict"}, {"lead"}, {"dashboard"}, {"run", "--election"}} {
		eventually(t, strings.Join(asked, " "), func() bool {
			return strings.HasPrefix(invoke(t, at(dsn), append(append([]string{"__complete"}, asked...), "")...).out, "billing\n:4")
		})
	}
}
