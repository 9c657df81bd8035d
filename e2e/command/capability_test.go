//go:build unix

package command_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// examined is what doctor --json says.
type examined struct {
	Scopes       map[string]string
	Capabilities []struct{ Name, Answer, Text string }
}

// answer returns the answer for a scope or a capability.
func (e examined) answer(name string) string {
	if a := e.Scopes[strings.TrimSuffix(name, " scope")]; a != "" {
		return a
	}
	for _, c := range e.Capabilities {
		if c.Name == name && c.Text != "" {
			return c.Answer
		}
	}
	return "missing"
}

// cells are what it says in a row of the table in docs/servers.md. What is not in question is left open.
func (e examined) cells(source string, open ...string) string {
	var lacks, untried []string
	for _, name := range capabilities {
		switch {
		case slices.Contains(open, name):
		case e.answer(name) == "cannot tell":
			untried = append(untried, name)
		case e.answer(name) != "yes":
			lacks = append(lacks, name)
		}
	}
	text := strings.Join(lacks, ", ")
	switch n := len(untried); {
	case n > 3:
		text += "; the rest is not tried"
	case n > 0:
		text += "; not tried: " + strings.Join(untried, ", ")
	}
	return fmt.Sprintf("%s|%s|%s|%s|", e.answer("session scope"), e.answer("transaction scope"), text, source)
}

// capabilities are what a row of that table may list as missing.
var capabilities = []string{"session lock", "transaction lock", "seen in pg_locks", "session timeout", "transaction timeout", "NOTIFY",
	"rising token", "synchronous acknowledgement"}

// What the table in docs/servers.md has as tried is what doctor says with either driver.
func TestDoctorSaysWhatEachRouteCanDo(t *testing.T) {
	t.Parallel()
	primary := own(t)
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	routes := []string{primary.DSN(), standby.DSN()}
	for _, mode := range []pgcluster.PoolMode{pgcluster.Session, pgcluster.Transaction, pgcluster.Statement} {
		bouncer := bounced(t, primary, mode, pgcluster.WithPoolSize(20))
		routes = append(routes, bouncer.DSN())
	}
	page, err := os.ReadFile("../../docs/servers.md")
	check(t, err)
	for _, driver := range []string{"pgx", "pq"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel() // statement mode takes ten seconds
			if table := table(t, driver, routes); !strings.Contains(string(page), table) {
				t.Errorf("doctor says, and docs/servers.md does not:\n%s", table)
			}
		})
	}
}

// table has a row for each route. The routes are asked at the same time.
func table(t *testing.T, driver string, routes []string) string {
	names := []string{"PostgreSQL 15, primary", "its hot standby", "PgBouncer 1.18, session mode", "its transaction mode", "its statement mode"}
	rows := make([]string, len(routes))
	var all sync.WaitGroup
	for i, route := range routes {
		if driver == "pgx" && i == 3 { // old versions of PgBouncer mix up prepared statements
			route += "&default_query_exec_mode=exec"
		}
		all.Go(func() { rows[i] = fmt.Sprintf("|%s|%s", names[i], examine(t, route, driver).cells("tried")) })
	}
	all.Wait()
	return strings.Join(rows, "\n")
}

// examine runs doctor.
func examine(t *testing.T, dsn, driver string) (said examined) {
	t.Helper()
	r := invoke(t, at(dsn), "doctor", "--json", "--timeout", "30s", "--lease", "30s", "--driver", driver)
	if err := json.Unmarshal([]byte(r.out), &said); err != nil {
		t.Errorf("%s: %v\n%s%s", dsn, err, r.out, r.err)
	}
	return said
}

func TestDoctorSaysThatWithoutFsyncTokensMayFall(t *testing.T) {
	t.Parallel()
	const off = "warn  durability       fsync = off: a crash of the host can lower tokens"
	invoke(t, at(own(t, pgcluster.WithSetting("fsync", "off")).DSN()), "doctor").want(t, exit.OK, off)
	invoke(t, at(own(t, pgcluster.WithSetting("fsync", "on")).DSN()), "doctor").want(t, exit.OK, "ok    durability")
}

func TestDoctorWarnsOfWhatItSeesAroundAServer(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	pool, err := sql.Open("pgx", dsn+"&application_name=Patroni%20heartbeat")
	check(t, err)
	defer pool.Close()
	check(t, pool.PingContext(t.Context()))
	for _, driver := range []string{"pgx", "pq"} {
		invoke(t, at(dsn+"&max_protocol_version=3.2"), "doctor", "--driver", driver).want(t, exit.OK,
			"note  Patroni          a server does not show its version", "note  protocol         version 3.2 is asked for",
			"note  host             a server whose host dies or hangs tells no leader: with a lease of 10s,", "may accept connections within 9s; with Patroni's watchdog want safety_margin >= 10s")
	}
	invoke(t, at(dsn), "doctor", "--lease", "1m").want(t, exit.OK, "with a lease of 1m0s, neither another primary nor this one again may accept connections within 54s; ")
	if said := invoke(t, at(own(t).DSN()), "doctor").out; strings.Contains(said, "Patroni") || strings.Contains(said, "protocol ") {
		t.Errorf("it said\n%s", said)
	}
}

func TestDoctorSeesTheAcknowledgementOfAStandby(t *testing.T) {
	t.Parallel()
	primary := own(t)
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	check(t, standby.Exec(t.Context(), "SELECT 1"))
	var name string
	check(t, connection(t, primary.DSN()).QueryRow(t.Context(), "SELECT application_name FROM pg_stat_replication").Scan(&name))
	for _, statement := range []string{fmt.Sprintf("ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (\"%s\")'", name), "SELECT pg_reload_conf()"} {
		check(t, primary.Exec(t.Context(), statement))
	}
	for _, driver := range []string{"pgx", "pq"} {
		eventually(t, "doctor sees it", func() bool {
			return strings.Contains(invoke(t, at(primary.DSN()), "doctor", "--driver", driver).out, "\nyes          synchronous acknowledgement")
		})
	}
}

func TestDoctorSaysThatARoleCannotFenceTransactions(t *testing.T) {
	t.Parallel()
	c := own(t)
	for _, statement := range []string{"CREATE ROLE app LOGIN", "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_try_advisory_xact_lock_shared(integer, integer) FROM PUBLIC"} {
		check(t, c.Exec(t.Context(), statement))
	}
	for _, driver := range []string{"pgx", "pq"} {
		invoke(t, at(c.DSN(pgcluster.ForRole("app"))), "doctor", "--driver", driver).want(t, exit.OK, "warn  InTx", "permission denied for function pg_try_advisory_xact_lock_shared")
	}
	check(t, c.Exec(t.Context(), "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_try_advisory_lock(bigint), pg_catalog.pg_try_advisory_lock(integer, integer) FROM PUBLIC"))
	for _, driver := range []string{"pgx", "pq"} { // the checks end early, and have said enough
		invoke(t, at(c.DSN(pgcluster.ForRole("app"))), "doctor", "--driver", driver).want(t, exit.Privilege,
			"Elections cannot run safely here: fix what says FAIL: advisory locks", "permission denied for function pg_try_advisory_lock")
	}
}

func TestTheReportHasNoSecrets(t *testing.T) {
	t.Parallel()
	c := guarded(t, password)
	file := filepath.Join(t.TempDir(), "report.txt")
	url := strings.Replace(c.DSN(pgcluster.ForRole("app")), "app@", "app:"+password+"@", 1)
	refused := strings.Replace(url, password, "wrong-staple-password", 1)
	for _, driver := range []string{"pgx", "pq"} {
		for _, tt := range []struct {
			dsn, says string
			code      int
		}{{url, "\nyes          rising token", exit.OK}, {refused, "FAIL  connection", exit.Connect}} {
			invoke(t, at(tt.dsn), "doctor", "--driver", driver, "--report", file).want(t, tt.code)
			written, err := os.ReadFile(file)
			check(t, err)
			if !strings.Contains(string(written), tt.says) || !strings.Contains(string(written), "driver "+driver) {
				t.Errorf("the report does not say %q:\n%s", tt.says, written)
			}
			for _, secret := range []string{password, "wrong-staple", "127.0.0.1", fmt.Sprint(c.Port()), "postgres://", `"app"`, `"postgres"`} {
				if strings.Contains(string(written), secret) {
					t.Errorf("the report has %q:\n%s", secret, written)
				}
			}
		}
	}
	invoke(t, at(url), "doctor", "--report", filepath.Join(file, "x")).want(t, exit.Failure, "not a directory")
}
