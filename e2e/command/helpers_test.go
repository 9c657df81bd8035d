//go:build unix

package command_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/sandbox"
	"github.com/pgelector/pgelector/elector"
)

// shared is the server of the tests that do not break it.
var shared = pgcluster.NewShared(pgcluster.WithSetting("max_connections", "200"))

func TestMain(m *testing.M) {
	if signal.Ignored(syscall.SIGHUP) { // under nohup the tested programs would ignore it, too
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	// Most tests need little processor time.
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic(err)
	}
	var err error
	if programDir, err = os.MkdirTemp("", "pgelector-command-"); err != nil {
		panic(err)
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each process would end a second late
	goleak.VerifyTestMain(shared.Around(m), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(programDir)
		os.Exit(code)
	}))
}

const patience = must.Patience

var check, eventually = must.Check, must.Eventually

// own starts a cluster that the test may break.
func own(t *testing.T, opts ...pgcluster.Option) *pgcluster.Cluster {
	t.Helper()
	c, err := pgcluster.Start(t.Context(), opts...)
	check(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// bounced starts a pgbouncer before the server.
func bounced(t *testing.T, c *pgcluster.Cluster, mode pgcluster.PoolMode, opts ...pgcluster.BouncerOption) *pgcluster.Bouncer {
	t.Helper()
	bouncer, err := c.Bouncer(t.Context(), mode, opts...)
	if errors.Is(err, pgcluster.ErrNoBouncer) {
		t.Skip(err)
	}
	check(t, err)
	return bouncer
}

// at returns the environment that sets the program's server.
func at(dsn string) []string { return []string{"DATABASE_URL=" + dsn} }

// name returns the name of the test's election.
func name(t *testing.T) string { return t.Name() }

var made atomic.Int64

// unique returns a new name for an object in the shared server, also when tests are repeated.
func unique(kind string) string { return fmt.Sprint(kind, "_", made.Add(1)) }

// connection opens a connection that is closed at the end of the test.
func connection(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

// occupy takes the election's lock until release is called.
func occupy(t *testing.T, dsn, election string) (release func()) {
	t.Helper()
	conn := connection(t, dsn)
	var granted bool
	check(t, conn.QueryRow(t.Context(), "SELECT pg_try_advisory_lock($1)", elector.KeyFromName(election)).Scan(&granted))
	if !granted {
		t.Fatal("the election is led already")
	}
	return func() {
		_, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
		check(t, err)
	}
}

// awaitLock waits in the server for the lock, and returns when it was granted.
func awaitLock(t *testing.T, dsn, election string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", elector.KeyFromName(election)); err != nil {
		t.Error(err)
	}
	_ = conn.Close(ctx)
}

// terminate ends the leader's backend.
func terminate(t *testing.T, dsn, election string) {
	t.Helper()
	key := elector.KeyFromName(election)
	var ended bool
	check(t, connection(t, dsn).QueryRow(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND objsubid = 1
		AND ((classid::bigint << 32) | objid::bigint) = $1`, key).Scan(&ended))
}

// guarded starts a server that asks for passwords, with a role app that has one.
func guarded(t *testing.T, password string) *pgcluster.Cluster {
	t.Helper()
	hba := filepath.Join(programDir, strings.ReplaceAll(t.Name(), "/", "-")+".hba")
	check(t, os.Chmod(programDir, 0o755))
	check(t, os.WriteFile(hba, []byte("host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"), 0o644))
	c := own(t, pgcluster.WithSetting("hba_file", hba))
	check(t, c.Exec(t.Context(), "CREATE ROLE app LOGIN PASSWORD '"+password+"'"))
	return c
}

// neverSaid are texts that say nothing to an operator. Package docs has those that stand in the sources.
var neverSaid = []string{`cause=""`, `error=""`, `error=<nil>`, `cause=<nil>`,
	`previous=""`, `leader=""`, "reason=resigned", "the lease expired: "}

// running is the program while it runs.
type running struct {
	cmd    *exec.Cmd
	lines  chan string // of standard output; closed when no process has it open
	errs   *must.Buffer
	exited chan struct{}
}

// launch starts the program. All its descendants inherit the pipe that is its standard output,
// so the end of the pipe shows that none of them is left.
func launch(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	cmd := exec.Command(built(t), args...)
	cmd.Env = append(os.Environ(), env...)
	return launchCommand(t, cmd)
}

// held starts the program with a standard input that stays open.
func held(t *testing.T, env []string, args ...string) (r *running, stdin io.WriteCloser) {
	t.Helper()
	cmd := exec.Command(built(t), args...)
	cmd.Env = append(os.Environ(), env...)
	stdin, err := cmd.StdinPipe()
	check(t, err)
	return launchCommand(t, cmd), stdin
}

func launchCommand(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{cmd: cmd, lines: make(chan string, 1000), errs: &must.Buffer{}, exited: make(chan struct{})}
	read, write, err := os.Pipe()
	check(t, err)
	readErr, writeErr, err := os.Pipe()
	check(t, err)
	cmd.Stdout, cmd.Stderr = write, writeErr
	check(t, cmd.Start())
	_, _ = write.Close(), writeErr.Close()
	var readers sync.WaitGroup
	errsEnd := make(chan struct{})
	readers.Go(func() {
		defer close(errsEnd)
		defer readErr.Close()
		_, _ = io.Copy(r.errs, readErr)
	})
	readers.Go(func() {
		defer read.Close()
		defer close(r.lines)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			r.lines <- lines.Text()
		}
		<-errsEnd
	})
	go func() {
		_ = cmd.Wait()
		close(r.exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-r.exited
		readers.Wait() // hangs if a process is left behind
		for _, text := range neverSaid {
			if strings.Contains(r.errs.String(), text) {
				t.Errorf("%v said %s:\n%s", cmd.Args[1:], text, r.errs)
			}
		}
		if t.Failed() {
			t.Logf("%v said:\n%s", cmd.Args[1:], r.errs)
		}
	})
	return r
}

// says waits for a line of standard output that has the prefix, and returns the rest.
func (r *running) says(t *testing.T, prefix string) string {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, open := <-r.lines:
			if !open {
				t.Fatalf("ended without %q\n%s", prefix, r.errs)
			}
			if rest, found := strings.CutPrefix(line, prefix); found {
				return rest
			}
		case <-timeout:
			t.Fatalf("did not say %q within %v\n%s", prefix, patience, r.errs)
		}
	}
}

// pid waits for "prefix 123".
func (r *running) pid(t *testing.T, prefix string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(r.says(t, prefix)))
	check(t, err)
	return pid
}

// logs waits for a text on standard error.
func (r *running) logs(t *testing.T, text string) {
	t.Helper()
	eventually(t, "on standard error: "+text, func() bool { return strings.Contains(r.errs.String(), text) })
}

// code waits for the end and returns the exit code.
func (r *running) code(t *testing.T) int {
	t.Helper()
	select {
	case <-r.exited:
	case <-time.After(patience):
		t.Fatalf("did not end within %v\n%s", patience, r.errs)
	}
	return r.cmd.ProcessState.ExitCode()
}

// ends waits for the end and compares the exit code.
func (r *running) ends(t *testing.T, code int) {
	t.Helper()
	if got := r.code(t); got != code {
		t.Errorf("exit code %d, want %d\n%s", got, code, r.errs)
	}
}

// silent waits until no process has standard output or error open: nothing is left.
func (r *running) silent(t *testing.T, within time.Duration) {
	t.Helper()
	timeout := time.After(within)
	for {
		select {
		case _, open := <-r.lines:
			if !open {
				return
			}
		case <-timeout:
			t.Fatalf("something is left after %v\n%s", within, r.errs)
		}
	}
}

func (r *running) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	check(t, sandbox.Signal(r.cmd.Process, sig))
}

// stops ends the program as systemd does, which is a success.
// stops sends TERM. A run of one command is then not a success, because the command did not end by itself.
func (r *running) stops(t *testing.T) {
	t.Helper()
	r.signal(t, syscall.SIGTERM)
	if slices.Contains(r.cmd.Args, "--once") {
		r.ends(t, exit.SignalBase+int(syscall.SIGTERM))
	} else {
		r.ends(t, exit.OK)
	}
}

// alive reports whether a process is running; a zombie is not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil { // it has ended, or there is no /proc
		return syscall.Kill(pid, 0) == nil
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// parent returns the id of a process's parent. It works on Linux only.
func parent(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	check(t, err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	ppid, err := strconv.Atoi(strings.Fields(rest)[1])
	check(t, err)
	return ppid
}
