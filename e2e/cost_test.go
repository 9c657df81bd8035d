//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// The rows of the table "What it costs" in docs/how-it-works.md. Each makes a fleet with the default options on a server
// that logs every statement with its role, and says whose statements count.
var costs = []struct {
	row      string
	takeover elector.Takeover
	n        int // of the candidate that counts, in the order in which they start
	shared   bool
}{
	{row: "leader", takeover: elector.Deputy, n: 0},
	{row: "`Deputy`", takeover: elector.Deputy, n: 1},
	{row: "`Wait`", takeover: elector.Wait, n: 1},
	{row: "`Poll`", takeover: elector.Poll, n: 1},
	{row: "other follower", takeover: elector.Deputy, n: 2},
	{row: "`NewSession`, leading", shared: true, n: 0},
	{row: "`NewSession`, following", shared: true, n: 1},
}

// A busy machine sends less, so the test takes the table's figures for upper bounds. The bounds leave room for the
// chance that the pause between two statements is short. The test logs what it counts, for whoever writes the table.
func TestStatementsAtRestAreAsManyAsThePageSays(t *testing.T) {
	t.Parallel()
	inSessionScope(t, "the table is of it")
	overEach(t, func(t *testing.T, d drivers) {
		s := on(t, own(t, pgcluster.WithSetting("log_statement", "all"), pgcluster.WithSetting("log_line_prefix", "role=%u ")))
		const rest = 8 * time.Second // the bound leaves room for four statements more
		for _, c := range costs {
			t.Run(c.row, func(t *testing.T) {
				t.Parallel()
				said := documented(t, c.row, d.name(0))
				var role string
				election := s.election(t)
				for i := range c.n + 1 {
					role = s.role(t, nil)
					dsn := s.DSN(pgcluster.ForRole(role))
					if c.shared {
						s.followOnASession(t, d, i, dsn, election)
					} else {
						s.followByDefault(t, d, i, dsn, election, c.takeover)
					}
				}
				time.Sleep(2 * time.Second) // a deputy prepares its statements
				before := s.statementsOf(t, role)
				time.Sleep(rest)
				sent := float64(s.statementsOf(t, role)-before) / rest.Seconds()
				t.Logf("%s over %s: %.2f statements a second", c.row, d.name(0), sent)
				if sent > said*1.2+0.5 {
					t.Errorf("%s over %s: %.2f statements a second at rest, and docs/how-it-works.md says %v", c.row, d.name(0), sent, said)
				}
				if sent == 0 {
					t.Error("no statement was counted")
				}
			})
		}
	})
}

// followByDefault starts a candidate with default options, and waits until it leads or has found the lock busy.
func (s *server) followByDefault(t *testing.T, d drivers, i int, dsn, election string, takeover elector.Takeover) {
	t.Helper()
	rec := hookstest.NewRecorder()
	e, err := elector.New(d.open(t, i, dsn), election, withoutLeader(rec), elector.WithTakeover(takeover))
	check(t, err)
	c := (&candidate{Elector: e, rec: rec}).run(t, nil)
	wait(t, c, func(e hooks.Campaign) bool { return e.Outcome == hooks.Busy || e.Outcome == hooks.Granted })
}

// followOnASession does so with a shared session of ten elections.
func (s *server) followOnASession(t *testing.T, d drivers, i int, dsn, election string) {
	t.Helper()
	rec := hookstest.NewRecorder()
	session, err := elector.NewSession(d.open(t, i, dsn), withoutLeader(rec))
	check(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{}, 10)
	for n := range 10 {
		e, err := session.Elector(fmt.Sprint(election, n))
		check(t, err)
		go func() {
			_ = e.Run(ctx, func(ctx context.Context, _ *elector.Term) error { <-ctx.Done(); return nil })
			done <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		stop()
		for range 10 {
			<-done
		}
		expect(t, session.Close(soon(t)))
	})
	seen := map[string]bool{}
	for cursor := rec.Cursor(); len(seen) < 10; {
		e, err := hookstest.Next(soon(t), cursor, func(e hooks.Campaign) bool { return e.Outcome == hooks.Busy || e.Outcome == hooks.Granted })
		check(t, err)
		seen[e.Election] = true
	}
}

var logged = regexp.MustCompile(`(?m)^role=(\S+) LOG:  (?:statement|execute [^:]*): `)

// statementsOf counts the statements in the server's log that a role has sent.
func (s *server) statementsOf(t *testing.T, role string) (n int) {
	t.Helper()
	log, err := s.ServerLog()
	check(t, err)
	for _, match := range logged.FindAllStringSubmatch(log, -1) {
		if match[1] == role {
			n++
		}
	}
	return n
}

// documented returns the statements a second of a row of the table, for a driver.
func documented(t *testing.T, row, driver string) float64 {
	t.Helper()
	page, err := os.ReadFile("../docs/how-it-works.md")
	check(t, err)
	match := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row) + ` \| ([\d.]+) \| ([\d.]+) \|`).FindStringSubmatch(string(page))
	if match == nil {
		t.Fatalf("docs/how-it-works.md has no row %q", row)
	}
	cell := match[1]
	if strings.HasPrefix(driver, "postgres") {
		cell = match[2]
	}
	n, err := strconv.ParseFloat(cell, 64)
	check(t, err)
	return n
}
