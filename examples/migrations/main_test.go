//go:build unix

package migrations_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/sandbox"
)

var (
	shared   = pgcluster.NewShared(pgcluster.WithSetting("max_connections", "300"))
	migrator string // the program
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(built{m})) }

// built runs the tests with the program of the processes.
type built struct{ *testing.M }

func (b built) Run() int {
	dir, err := os.MkdirTemp("", "migrator")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	migrator = filepath.Join(dir, "migrator")
	if said, err := exec.Command("go", "build", "-o", migrator, "./internal/migrator").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, said))
	}
	return b.M.Run()
}

const timeout = 90 * time.Second

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}

var drivers = []string{"pgx", "postgres"}

func overBoth(t *testing.T, test func(t *testing.T, driver string)) {
	t.Helper()
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, driver)
		})
	}
}

var databases atomic.Int32

// newDatabase creates a database.
func newDatabase(t *testing.T) (dsn string) {
	t.Helper()
	name := fmt.Sprint("migrations_", databases.Add(1))
	admin := open(t, "pgx", shared.Get(t).DSN())
	execute(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	return shared.Get(t).DSN(pgcluster.ForDatabase(name))
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open(driver, dsn)
	check(t, err)
	t.Cleanup(func() { check(t, pool.Close()) })
	return pool
}

func execute(t *testing.T, pool *sql.DB, statement string) {
	t.Helper()
	_, err := pool.ExecContext(context.Background(), statement)
	check(t, err)
}

func query[V any](t *testing.T, pool *sql.DB, text string, args ...any) (value V) {
	t.Helper()
	check(t, pool.QueryRowContext(context.Background(), text, args...).Scan(&value))
	return value
}

// process is a migrator.
type process struct {
	*exec.Cmd
	said  *bytes.Buffer
	ended chan struct{}
}

func launch(t *testing.T, lock, driver, dsn string, lease time.Duration) *process {
	t.Helper()
	p := &process{exec.Command(migrator, lock, driver), &bytes.Buffer{}, make(chan struct{})}
	p.Env = append(os.Environ(), "DATABASE_URL="+dsn, "LEASE="+lease.String())
	p.Stdout, p.Stderr = p.said, p.said
	check(t, p.Start())
	go func() {
		defer close(p.ended)
		_ = p.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
	})
	return p
}

func (p *process) freeze(t *testing.T) {
	t.Helper()
	check(t, sandbox.Stop(p.Process.Pid))
}

// wait returns what the process said.
func (p *process) wait(t *testing.T) string {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(timeout):
		t.Fatalf("the migrator has not ended within %v", timeout)
	}
	return p.said.String()
}

// hasEnded reports whether the process has ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// applied lists the versions that a migrator has applied.
func applied(said string) (versions []string) {
	for in := bufio.NewScanner(strings.NewReader(said)); in.Scan(); {
		if version, ok := strings.CutPrefix(in.Text(), "applied "); ok {
			versions = append(versions, version)
		}
	}
	return versions
}
