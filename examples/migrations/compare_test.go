//go:build unix

package migrations_test

import (
	"flag"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var compare = flag.Bool("compare", false, "compare the locks, for some minutes")

// locks are those that are compared, by the names that the migrator and the documents give them.
var locks = []string{"goose", "locker", "golang-migrate", "goose-session", "goose-table", "golang-migrate-own"}

// patience is how long a process may wait for a lock that is stranded.
const patience = 5 * lease

func TestTheLocksInComparison(t *testing.T) {
	if !*compare {
		t.Skip("-compare")
	}
	for _, lock := range locks {
		t.Run(lock, func(t *testing.T) {
			t.Logf("compared %s: %s | %s | %s | %s", lock, afterFreeze(t, lock), besideAnIndex(t, lock), afterKill(t, lock), atRest(t, lock))
		})
	}
}

// afterFreeze is how soon another process goes on when the one that migrates is frozen.
func afterFreeze(t *testing.T, lock string) string {
	s := newScene(t)
	first := s.begin(t, lock, "pgx")
	first.freeze(t)
	check(t, s.blocker.Commit())
	eventually(t, "the index is built", func() bool { return s.atWork(t) == 0 })
	frozen := time.Now()
	second := launch(t, lock, "pgx", s.dsn, lease)
	select {
	case <-second.ended:
		return fmt.Sprintf("%.1f s", time.Since(frozen).Seconds())
	case <-time.After(patience):
		return "never"
	}
}

// besideAnIndex is whether CREATE INDEX CONCURRENTLY and a process that waits are a deadlock.
func besideAnIndex(t *testing.T, lock string) string {
	s := newScene(t)
	first := s.begin(t, lock, "pgx")
	second := launch(t, lock, "pgx", s.dsn, lease)
	time.Sleep(lease) // it waits
	check(t, s.blocker.Commit())
	if said := first.wait(t) + second.wait(t); strings.Contains(said, "deadlock detected") {
		return "yes"
	} else if strings.Count(said, "done") != 2 {
		t.Errorf("they said %s", said)
	}
	return "no"
}

// afterKill is whether another process begins while the statement of a killed one runs on.
func afterKill(t *testing.T, lock string) string {
	s := newScene(t)
	first := s.begin(t, lock, "pgx")
	check(t, first.Process.Kill())
	second := launch(t, lock, "pgx", s.dsn, lease)
	for until := time.Now().Add(2 * patience); time.Now().Before(until) && !second.hasEnded(); {
		if s.atWork(t) > 1 { // the watch may not have seen it yet
			return "yes"
		}
		time.Sleep(10 * time.Millisecond)
	}
	if s.worst().atWork > 1 {
		return "yes"
	}
	return "no"
}

// atRest is how much WAL a lock writes while it is held and one process waits for it.
func atRest(t *testing.T, lock string) string {
	s := newScene(t)
	s.begin(t, lock, "pgx")
	launch(t, lock, "pgx", s.dsn, lease)
	time.Sleep(lease) // both have begun
	const lsn, looks = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn", 4
	mb := math.Inf(1) // the least: the server writes some of its own
	for range looks {
		before := query[float64](t, s.pool, lsn)
		time.Sleep(lease)
		mb = min(mb, (query[float64](t, s.pool, lsn)-before)/1e6*float64(time.Hour)/float64(lease))
	}
	if mb < 0.1 {
		return "0"
	}
	return fmt.Sprintf("%.1f MB/h", mb)
}

// Any tool migrates under the command, which knows nothing of its connection.
func TestTheCommandRunsAMigrationOnceOnEachOfManyHosts(t *testing.T) {
	t.Parallel()
	pgelector := filepath.Join(t.TempDir(), "pgelector")
	build := exec.Command("go", "build", "-o", pgelector, ".")
	build.Dir = "../../cmd/pgelector"
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	dsn := newDatabase(t)
	type outcome struct {
		said string
		err  error
	}
	ended := make(chan outcome)
	const hosts = 4
	for i := range hosts {
		go func() {
			cmd := exec.Command(pgelector, "run", "migrations", "--once", "--takeover", "poll", "--retry", "100ms", "--log-level", "error", "--",
				migrator, "none", drivers[i%2])
			cmd.Env = append(cmd.Environ(), "DATABASE_URL="+dsn, "LEASE="+unbroken.String())
			said, err := cmd.CombinedOutput()
			ended <- outcome{string(said), err}
		}()
	}
	var versions []string
	for range hosts {
		o := <-ended
		if o.err != nil || !strings.Contains(o.said, "done\n") {
			t.Errorf("a host said %v, %s", o.err, o.said)
		}
		versions = append(versions, applied(o.said)...)
	}
	if slices.Sort(versions); !slices.Equal(versions, []string{"1", "2"}) {
		t.Errorf("applied were %q", versions)
	}
	isClean(t, open(t, "pgx", dsn))
}
