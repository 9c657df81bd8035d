//go:build unix

package command_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/docscheck"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/roster"
)

func lead(t *testing.T, dsn, election, id string, more ...string) *running {
	t.Helper()
	r := follow(t, dsn, election, id, more...)
	r.says(t, "ready")
	return r
}

// follow runs a command that prints "ready" when it leads.
func follow(t *testing.T, dsn, election, id string, more ...string) *running {
	t.Helper()
	return launch(t, at(dsn), quick(election, append(append([]string{"--candidate", id}, more...), sh("echo ready; exec sleep 1000")...)...)...)
}

// standing is the output of status for one election.
type standing struct {
	Leader, Deputy *struct {
		Candidate    string
		PID          int
		WaitingSince *time.Time `json:"queued_at"`
	}
	Waiting []struct{ Candidate string }
}

func standingOf(t *testing.T, dsn, election, driver string) standing {
	t.Helper()
	var got struct{ Elections []standing }
	r := invoke(t, at(dsn), "status", "--json", "--driver", driver, election)
	check(t, json.Unmarshal([]byte(r.out), &got))
	return got.Elections[0]
}

// pasted runs the first statement of docs/operating.md and returns its rows.
func pasted(t *testing.T, dsn, election string) (answer []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operating.md")
	check(t, err)
	blocks, err := docscheck.Blocks(string(page))
	check(t, err)
	setup, query, _ := strings.Cut(blocks[0].Code, "\\set election orders\n")
	conn := connection(t, dsn)
	_, err = conn.Exec(t.Context(), setup)
	check(t, err)
	rows, err := conn.Query(t.Context(), strings.ReplaceAll(query, ":'election'", "'"+election+"'"))
	check(t, err)
	for rows.Next() {
		values, err := rows.Values()
		check(t, err)
		answer = append(answer, fmt.Sprint(values[1], " ", values[0]))
	}
	check(t, rows.Err())
	return answer
}

// The leader holds a seat as well. A polling candidate holds none.
func TestTheDeputyShowsEverywhere(t *testing.T) {
	t.Parallel()
	for _, takeover := range []string{"deputy", "wait"} {
		t.Run(takeover, func(t *testing.T) {
			t.Parallel()
			dsn, address := database(t), freeAddress(t)
			people := launch(t, at(dsn), "watch", "billing", "--interval", "20ms")
			programs := launch(t, at(dsn), "watch", "billing", "--interval", "20ms", "--json", "--driver", "pq")
			changes := func(event, text string) {
				t.Helper()
				line := people.says(t, "")
				for strings.Contains(line, "  pgelector ") { // the pool's name, until the grant or the seat sets the candidate's
					line = people.says(t, "")
				}
				if !strings.Contains(line, text) {
					t.Errorf("watch printed %q, want %q", line, text)
				}
				var c struct {
					Event          string
					Leader, Deputy *struct{ Candidate string }
				}
				for c.Event == "" || c.Leader != nil && c.Leader.Candidate == "pgelector" || c.Deputy != nil && c.Deputy.Candidate == "pgelector" {
					c.Leader, c.Deputy = nil, nil
					check(t, json.Unmarshal([]byte(programs.says(t, "")), &c))
				}
				if c.Event != event || (c.Leader != nil) != (event != "vacant") || (c.Deputy != nil) != (event == "deputy") {
					t.Errorf("watch --json printed %+v, want %s", c, event)
				}
			}
			changes("vacant", "nobody leads")
			leading := lead(t, dsn, "billing", "first")
			changes("leads", "first leads")
			polling := follow(t, dsn, "billing", "polls", "--takeover", "poll", "--retry", "1h") // so that the deputy is elected
			polling.logs(t, "leader changed")
			if s := standingOf(t, dsn, "billing", "pgx"); s.Leader == nil || s.Leader.Candidate != "first" || s.Deputy != nil {
				t.Errorf("without a deputy: %+v", s)
			}
			following := follow(t, dsn, "billing", "second", "--takeover", takeover, "--deputy-interval", "20ms", "--http", address)
			following.logs(t, "became deputy")
			changes("deputy", "second is the deputy")
			for _, driver := range []string{"pgx", "pq"} {
				s := standingOf(t, dsn, "billing", driver)
				if s.Leader == nil || s.Leader.Candidate != "first" || s.Deputy == nil || s.Deputy.Candidate != "second" || s.Deputy.PID == 0 || len(s.Waiting) > 0 {
					t.Errorf("%s: %+v", driver, s)
				}
			}
			if answer := pasted(t, dsn, "billing"); !slices.Equal(answer, []string{"first leads", "second deputy"}) {
				t.Errorf("in psql: %q", answer)
			}
			invoke(t, at(dsn), "status", "billing").want(t, 0, "first", "leads", "second", "deputy")
			if takeover == "wait" { // its waits are short
				eventually(t, "the deputy waits", func() bool {
					s := standingOf(t, dsn, "billing", "pgx")
					return s.Deputy != nil && s.Deputy.WaitingSince != nil
				})
			}
			expectGet(t, address, "/leader", http.StatusServiceUnavailable, `"leader":"first","deputy":true`)
			expectGet(t, address, "/metrics", http.StatusOK, "pgelector_deputy{election=\"billing\"} 1\n")
			invoke(t, at(dsn), "doctor").want(t, 0, "ok    elections        1 have a leader, and 1 a deputy: 2 sessions are pinned")
			leading.stops(t)
			following.says(t, "ready")
			expectGet(t, address, "/leader", http.StatusOK, `"leader":"second","deputy":false`)
			expectGet(t, address, "/metrics", http.StatusOK, "pgelector_deputy{election=\"billing\"} 0\n")
			if n := strings.Count(following.errs.String(), "became deputy"); n != 1 {
				t.Errorf("it logged %d times that it became the deputy", n)
			}
			for _, r := range []*running{following, polling} {
				r.stops(t)
			}
		})
	}
}

// The test takes a minute: a deputy may be silent for that long.
func TestDoctorNamesTheStrangerOnASeat(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	leading := lead(t, dsn, "billing", "first")
	stranger := connection(t, dsn+"&application_name=stranger")
	high, low := lockkey.Halves(seat.Key(keyOf("billing")))
	var pid int
	check(t, stranger.QueryRow(t.Context(), `SELECT pg_backend_pid() WHERE pg_try_advisory_lock($1, $2) OR pg_try_advisory_lock($1, $2 # 1)`, high, low).Scan(&pid))
	address := freeAddress(t)
	following := follow(t, dsn, "billing", "second", "--http", address)
	following.logs(t, "leader changed")
	expectGet(t, address, "/metrics", http.StatusOK, "pgelector_deputy{election=\"billing\"} 0\n")
	if s := standingOf(t, dsn, "billing", "pgx"); s.Deputy == nil || s.Deputy.Candidate != "stranger" {
		t.Errorf("the stranger holds the seat, but status printed %+v", s)
	}
	doctor := func() string { return invoke(t, at(dsn), "doctor").out }
	warning := fmt.Sprintf("warn  deputy           backend %d (\"stranger\", user postgres) holds the deputy's seat of the election key %d, and ", pid, keyOf("billing"))
	if out := doctor(); !strings.Contains(out, warning+"publishes no lease") {
		t.Errorf("the stranger has just sent a statement, but publishes no lease:\n%s", out)
	}
	_, err := stranger.Exec(t.Context(), "SELECT pg_advisory_lock_shared(318473925, 10000)") // as docs/protocol.md says
	check(t, err)
	if out := doctor(); strings.Contains(out, "warn  deputy") {
		t.Errorf("the stranger has just published a lease, as a candidate does:\n%s", out)
	}
	time.Sleep(time.Minute)
	eventually(t, "doctor warns", func() bool { return strings.Contains(doctor(), warning+"has sent nothing for 1m") })
	check(t, stranger.Close(t.Context()))
	following.logs(t, "became deputy")
	if out := doctor(); strings.Contains(out, "warn  deputy") {
		t.Errorf("a candidate is the deputy:\n%s", out)
	}
	for _, r := range []*running{following, leading} {
		r.stops(t)
	}
}

// A process that was killed comes back under another name: its old one is of no use to whoever looks for the cause.
func TestStatusShowsWhoIsNotSeenAnyMore(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	pool, err := sql.Open("pgx", dsn)
	check(t, err)
	published, err := roster.New(pool, roster.WithPublishInterval(time.Second))
	check(t, err)
	check(t, published.Migrate(t.Context()))
	e, err := elector.New(pool, name(t), elector.WithCandidateID("killed"), elector.WithHooks(published))
	check(t, err)
	check(t, e.Start(context.Background()))
	eventually(t, "it is published", func() bool { return published.Stats().Writes > 0 })
	eventually(t, "status finds the name by itself", func() bool {
		all := invoke(t, at(dsn), "status").out
		return strings.Contains(all, name(t)) && !strings.Contains(all, "key ")
	})
	invoke(t, at(dsn), "status", "--json").want(t, exit.OK, `"name": "`+name(t)+`"`)
	page := launch(t, at(dsn), "dashboard", "--listen", "127.0.0.1:0")
	address := strings.TrimSuffix("127.0.0.1:"+page.says(t, "http://127.0.0.1:"), "/")
	if shown := get(t, address, "/").body; !strings.Contains(shown, name(t)) || strings.Contains(shown, "Without a roster") {
		t.Error("the page does not find the roster by itself")
	}
	page.stops(t)
	check(t, pool.Close()) // its publications end, and nobody says why
	eventually(t, "status shows it", func() bool {
		return strings.Contains(strings.Join(strings.Fields(invoke(t, at(dsn), "status", "--roster", "pgelector", name(t)).out), " "), "not seen killed published ")
	})
	_ = e.Stop(t.Context())
	_ = published.Close(t.Context())
}

func TestIfFreeSaysOnceThatAnotherLeads(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	lead(t, dsn, name(t), "leads")
	r := invoke(t, at(dsn), "run", name(t), "--if-free", "--", "true")
	if lines := strings.Count(r.err, "\n"); r.code != exit.OK || lines != 1 || !strings.Contains(r.err, "another candidate leads, not running the command: election="+name(t)+" leader=leads ") {
		t.Errorf("exit code %d, %d lines:\n%s", r.code, lines, r.err)
	}
}
