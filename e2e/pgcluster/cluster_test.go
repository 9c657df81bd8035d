//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pgelector/pgelector/e2e/must"
	"go.uber.org/goleak"
)

// shared is the cluster of the tests that do not break it.
var shared = NewShared()

func TestMain(m *testing.M) {
	if scenario := os.Getenv(scenarioVariable); scenario != "" {
		actScenario(scenario) // a child process of a test in faults_test.go
		return
	}
	goleak.VerifyTestMain(shared.Around(m))
}

// own starts a cluster that the test may break, or leave roles and databases on.
func own(t *testing.T, opts ...Option) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, c.Stop()) })
	return c
}

var check = must.Check

func mustBeEmpty(t *testing.T, dir string) {
	t.Helper()
	if left := must.Leftovers(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// connect opens a connection that is closed at the end of the test.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Close(ctx)
	})
	return conn
}

// ask returns the one value that a query yields.
func ask[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var value T
	check(t, conn.QueryRow(t.Context(), sql).Scan(&value))
	return value
}

// silent fails the test if the connection answers within a moment. The connection is unusable
// afterwards.
func silent(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT 1"); ctx.Err() == nil {
		t.Fatalf("got an answer (error %v), want silence", err)
	}
}

func TestServerListensOnLoopbackOnly(t *testing.T) {
	conn := connect(t, shared.Get(t).DSN())
	if got := ask[string](t, conn, "SHOW listen_addresses"); got != "127.0.0.1" {
		t.Errorf("listen_addresses is %q", got)
	}
	if got := ask[string](t, conn, "SHOW unix_socket_directories"); got != "" {
		t.Errorf("unix_socket_directories is %q", got)
	}
	if got := ask[string](t, conn, "SHOW TimeZone"); got != "UTC" {
		t.Errorf("TimeZone is %q", got)
	}
}

func TestAFailedStartReportsTheServersLogAndLeavesNothing(t *testing.T) {
	tmp := must.Root(t)
	t.Setenv("TMPDIR", tmp)
	_, err := Start(t.Context(), WithSetting("max_connections", "many"))
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "max_connections": "many"`) {
		t.Errorf("got error %v", err)
	}
	mustBeEmpty(t, tmp)
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	tmp := must.Root(t)
	t.Setenv("TMPDIR", tmp)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // without a template Start runs initdb
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() {
		_, err := Start(ctx)
		started <- err
	}()
	for begun := false; !begun && len(started) == 0; time.Sleep(time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(tmp, "*", "data", "PG_VERSION")) // which initdb writes at its begin
		check(t, err)
		begun = len(found) > 0
	}
	cancel()
	if err := <-started; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	mustBeEmpty(t, tmp)
}

func TestStartAsRootReportsADirectoryThatTheServerCannotEnter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts servers as another user")
	}
	t.Setenv("TMPDIR", t.TempDir())
	if _, err := Start(t.Context()); err == nil || !strings.Contains(err.Error(), "set TMPDIR") {
		t.Errorf("got error %v", err)
	}
}

func TestStopIsIdempotentAndLeavesNothing(t *testing.T) {
	tmp := must.Root(t)
	t.Setenv("TMPDIR", tmp)
	c := own(t)
	_, err := c.AddStandby(t.Context())
	check(t, err)
	_, err = c.Proxy(t.Context())
	check(t, err)
	check(t, c.Stop())
	check(t, c.Stop())
	mustBeEmpty(t, tmp)
}

func TestResumeReportsATakenPort(t *testing.T) {
	c := own(t)
	check(t, c.Shutdown(t.Context(), Fast))
	thief, err := net.Listen("tcp4", c.Addr())
	check(t, err)
	go func() {
		for {
			conn, err := thief.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	err = c.Resume(t.Context())
	check(t, thief.Close())
	if !errors.Is(err, errPortTaken) {
		t.Fatalf("got error %v", err)
	}
	check(t, c.Resume(t.Context()))
}

func TestDamagedTemplateIsReplaced(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	bin, err := findBinaries(t.Context())
	check(t, err)
	template, err := bin.templateFile(t.Context())
	check(t, err)
	check(t, pack(t.TempDir(), template)) // an empty directory
	check(t, os.Truncate(template, 100))
	own(t)
	if info, err := os.Stat(template); err != nil || info.Size() < 1<<20 {
		t.Errorf("the template is %v, error %v", info, err)
	}
}

func TestAbandonedFilesInTheCacheAreRemoved(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cache, err := cacheDir()
	check(t, err)
	for name, age := range map[string]time.Duration{"old.tmp": 2 * stale, "new.tmp": 0, "old.tar": 2 * stale} {
		path := filepath.Join(cache, name)
		check(t, os.WriteFile(path, nil, 0o600))
		check(t, os.Chtimes(path, time.Time{}, time.Now().Add(-age)))
	}
	_, err = cacheDir()
	check(t, err)
	left, err := filepath.Glob(cache + "/*")
	check(t, err)
	if want := []string{cache + "/new.tmp", cache + "/old.tar"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}

func TestBinariesAreFoundInTheDocumentedOrder(t *testing.T) {
	const nowhere = "nowhere"
	tests := []struct {
		name               string
		holds              []string // directories that hold postgres and initdb
		variable, path     string
		pgConfig, download string
		want               string // a directory, or part of an error
	}{
		{name: "the variable comes first", holds: []string{"own", "path", "lib/15/bin"}, variable: "own", path: "path", want: "own"},
		{name: "a wrong variable is an error", holds: []string{"path"}, variable: nowhere, path: "path", want: "does not hold postgres and initdb"},
		{name: "the path comes second", holds: []string{"path", "lib/15/bin"}, path: "path", want: "path"},
		{name: "links in the path are followed", holds: []string{"lib/14/bin", "lib/18/bin"}, path: "links", want: "lib/18/bin"},
		{name: "the newest installed version", holds: []string{"lib/9.6/bin", "lib/14/bin", "lib/18/bin", "lib/17/bin"}, path: nowhere, want: "lib/18/bin"},
		{name: "an incomplete version is passed over", holds: []string{"lib/14/bin"}, pgConfig: "lib/18/bin", want: "lib/14/bin"},
		{name: "pg_config", holds: []string{"elsewhere"}, pgConfig: "elsewhere", download: "fetched", want: "elsewhere"},
		{name: "a download comes last", pgConfig: nowhere, download: "fetched", want: "fetched"},
		{name: "nothing and no download", want: "apt-get install postgresql"},
		{name: "a failed download", download: "error", want: "no network"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			check(t, os.MkdirAll(filepath.Join(root, "lib/19/bin"), 0o700)) // installed without the server
			linkBinaries(t, filepath.Join(root, "lib/18/bin"), filepath.Join(root, "links"))
			for _, dir := range test.holds {
				fakeBinaries(t, filepath.Join(root, dir))
			}
			at := func(dir string) string {
				if dir == "" {
					return ""
				}
				return filepath.Join(root, dir)
			}
			s := system{
				getenv: func(name string) string {
					return map[string]string{"PGELECTOR_PG_BIN": at(test.variable), "PATH": "relative:" + at(test.path)}[name]
				},
				installed: []string{at("none/*/bin"), at("lib/*/bin")},
				pgConfig: func(context.Context) (string, error) {
					if test.pgConfig == "" {
						return "", os.ErrNotExist
					}
					return at(test.pgConfig), nil
				},
			}
			switch test.download {
			case "":
			case "error":
				s.download = func(context.Context) (binaries, error) { return "", errors.New("no network") }
			default:
				s.download = func(context.Context) (binaries, error) { return binaries(at(test.download)), nil }
			}
			got, err := s.find(t.Context())
			if err == nil && string(got) != at(test.want) {
				t.Errorf("found %s, want %s", got, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
			if err != nil && test.variable == "" && !errors.Is(err, ErrNoPostgres) {
				t.Errorf("error %v is not ErrNoPostgres", err)
			}
		})
	}
}

func fakeBinaries(t *testing.T, dir string) {
	t.Helper()
	check(t, os.MkdirAll(dir, 0o700))
	for _, program := range []string{"postgres", "initdb"} {
		check(t, os.WriteFile(filepath.Join(dir, program), nil, 0o700))
	}
}

func linkBinaries(t *testing.T, from, to string) {
	t.Helper()
	check(t, os.MkdirAll(to, 0o700))
	for _, program := range []string{"postgres", "initdb"} {
		check(t, os.Symlink(filepath.Join(from, program), filepath.Join(to, program)))
	}
}
