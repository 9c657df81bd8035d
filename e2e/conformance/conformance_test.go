//go:build unix

package conformance_test

import (
	"context"
	"database/sql"
	_ "embed"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/electortest"
)

// Each script in scripts.txt is a sequence of statements on several sessions, with their results. A
// real server, over both drivers, and the stand-in of package electortest must give these results.
//
//go:embed scripts.txt
var file string

var update = flag.Bool("update", false, "write the results of a real server into scripts.txt")

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }

// A side is a server for a script: a real one or the stand-in.
type side struct {
	open    func(t *testing.T) *sql.DB // a pool of the primary
	standby func(t *testing.T) *sql.DB // a pool of its standby
	promote func(t *testing.T)

	setEpoch func(t *testing.T, setting string) // of the database

	terminate, cancel func(pid int32)
	isAtGuard         func(pid int32) bool // reports whether it waits for a guard lock
}

func TestTheStandInAnswersAsPostgreSQLDoes(t *testing.T) {
	for name, text := range scripts() {
		t.Run(name, func(t *testing.T) {
			for _, driver := range []string{"pgx", "postgres"} {
				t.Run(driver, func(t *testing.T) {
					played := strings.TrimSpace(play(t, text, realSide(t, driver, strings.Contains(text, "promote"))))
					if *update {
						file = strings.Replace(file, text, played, 1)
						check(t, os.WriteFile("scripts.txt", []byte(file), 0o644))
						text = played
					}
					compare(t, text, played)
				})
			}
			for name, driver := range map[string]electortest.Driver{"stand-in like pgx": electortest.PGX, "stand-in like pq": electortest.PQ} {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { compare(t, text, strings.TrimSpace(play(t, text, standIn(t, driver)))) })
				})
			}
		})
	}
}

func TestEveryStatementIsPlayed(t *testing.T) {
	for name := range verbs {
		if !strings.Contains(file, " "+name+" ") {
			t.Errorf("no script plays %s", name)
		}
	}
}

// realSide returns a PostgreSQL server. A script that promotes a standby gets its own servers.
func realSide(t *testing.T, driver string, ownServer bool) side {
	open := func(c *pgcluster.Cluster) func(t *testing.T) *sql.DB {
		return func(t *testing.T) *sql.DB {
			pool, err := sql.Open(driver, c.DSN())
			check(t, err)
			return pool
		}
	}
	if !ownServer {
		return adminSide(t, shared.Get(t), side{open: open(shared.Get(t))})
	}
	primary, err := pgcluster.Start(t.Context())
	check(t, err)
	t.Cleanup(func() { check(t, primary.Stop()) })
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	return adminSide(t, primary, side{open: open(primary), standby: open(standby),
		promote: func(t *testing.T) { check(t, standby.Promote(t.Context())) }})
}

// adminSide adds the functions that an administrator's connection implements.
func adminSide(t *testing.T, c *pgcluster.Cluster, s side) side {
	ask := func(sql string, pid int32) (yes bool) {
		conn, err := c.Conn(t.Context())
		check(t, err)
		defer conn.Close(t.Context())
		check(t, conn.QueryRow(t.Context(), sql, pid).Scan(&yes))
		return yes
	}
	alter := func(t *testing.T, setting string) {
		check(t, c.Exec(context.Background(), "ALTER DATABASE postgres "+setting))
	}
	s.setEpoch = func(t *testing.T, setting string) { alter(t, "SET pgelector.epoch = '"+setting+"'") }
	t.Cleanup(func() { alter(t, "RESET pgelector.epoch") })
	s.terminate = func(pid int32) { ask("SELECT pg_terminate_backend($1)", pid) }
	s.cancel = func(pid int32) { ask("SELECT pg_cancel_backend($1)", pid) }
	s.isAtGuard = func(pid int32) bool {
		return ask("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND objsubid = 2 AND NOT granted)", pid)
	}
	return s
}

// standIn returns the stand-in. It runs in the bubble of the test.
func standIn(t *testing.T, driver electortest.Driver) side {
	server := electortest.NewServer()
	t.Cleanup(server.Close)
	standby := server.NewStandby(0)
	t.Cleanup(standby.Close)
	open := func(s *electortest.Server) func(*testing.T) *sql.DB {
		process := s.NewProcess()
		process.SetDriver(driver)
		return func(*testing.T) *sql.DB { return process.Open() }
	}
	return side{open: open(server), standby: open(standby), promote: func(t *testing.T) { check(t, standby.Promote()) },
		setEpoch:  func(_ *testing.T, setting string) { server.SetTokenEpoch(setting) },
		terminate: func(pid int32) { server.Terminate(pid) },
		cancel:    func(pid int32) { server.Cancel(pid) },
		isAtGuard: func(pid int32) bool {
			return slices.ContainsFunc(server.Locks(), func(l electortest.Lock) bool { return l.PID == pid && l.Guard && !l.Granted })
		}}
}

// scripts returns the scripts by their names.
func scripts() map[string]string {
	all := map[string]string{}
	for _, script := range strings.Split("\n"+file, "\n== ")[1:] {
		name, text, _ := strings.Cut(script, "\n")
		all[name] = strings.TrimSpace(text)
	}
	return all
}

// compare reports each line that differs.
func compare(t *testing.T, want, got string) {
	t.Helper()
	wanted, lines := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i, line := range lines {
		if i >= len(wanted) || line != wanted[i] {
			t.Errorf("line %d:\ngot  %s\nwant %s", i+1, line, wanted[min(i, len(wanted)-1)])
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within waits until happened returns true.
func within(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}
