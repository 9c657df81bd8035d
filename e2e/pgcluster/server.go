//go:build unix

package pgcluster

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pgelector/pgelector/e2e/sandbox"
)

// Mode is a shutdown mode, as in pg_ctl --mode.
type Mode syscall.Signal

const (
	// Fast ends every session with an error (57P01) and shuts down cleanly.
	Fast = Mode(syscall.SIGINT)
	// Immediate aborts the server; the next start goes through crash recovery.
	Immediate = Mode(syscall.SIGQUIT)
)

const (
	readyTimeout = time.Minute           // for a server to accept connections, including recovery
	readyPoll    = 10 * time.Millisecond // between two looks at a standby that is promoted
)

// errPortTaken is returned by boot when another process uses the port.
var errPortTaken = errors.New("another process listens on the port")

// firstBoot configures the server for a free port and starts it.
func (c *Cluster) firstBoot(ctx context.Context) (err error) {
	for range sandbox.PortAttempts {
		if c.port, err = sandbox.FreePort(); err != nil {
			return err
		}
		port := []setting{{"port", strconv.Itoa(c.port)}}
		if err = c.configure(slices.Concat(throwAway, c.settings, port)); err != nil {
			return err
		}
		if err = c.boot(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// configure appends to postgresql.conf, where the last line of a setting counts.
func (c *Cluster) configure(settings []setting) error {
	conf, err := os.OpenFile(filepath.Join(c.dataDir(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	_, err = conf.WriteString(confLines(settings))
	return errors.Join(err, conf.Close())
}

// boot starts the postmaster and waits until it accepts connections.
func (c *Cluster) boot(ctx context.Context) error {
	before, _ := os.Stat(c.logFile())
	command := append(slices.Clone(c.preload), c.bin.path("postgres"), "-D", c.dataDir())
	server, err := c.box.Start(c.logFile(), "/usr/bin/env", command...)
	if err != nil {
		return err
	}
	c.server = server
	err = c.WaitReady(ctx)
	if err == nil || !server.Ended() {
		return err
	}
	log := logSince(c.logFile(), before)
	// Only the log shows that the port was taken.
	if strings.Contains(log, "could not bind") {
		return fmt.Errorf("pgcluster: port %d: %w; the server's log:\n%s", c.port, errPortTaken, log)
	}
	return fmt.Errorf("pgcluster: the server did not start (%w); its log:\n%s", server.Err, log)
}

func logSince(path string, before os.FileInfo) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if before != nil {
		content = content[min(int(before.Size()), len(content)):]
	}
	return string(content)
}

// WaitReady returns when the server accepts connections. After KillBackend, for instance, it
// goes through crash recovery first. WaitReady fails when ctx ends, after a minute, or when
// the server has ended.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return c.server.AwaitReady(ctx, c.logFile(), c.answers)
}

// answers runs one statement. It connects only after the server has reported that it is ready:
// an earlier attempt would leave a FATAL line in its log, or reach another server on the same
// port.
func (c *Cluster) answers(ctx context.Context) error {
	if err := c.announced(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return c.Exec(ctx, "SELECT")
}

// announced checks what pg_ctl checks: the postmaster's id in the first line of postmaster.pid
// and its state in the eighth.
func (c *Cluster) announced() error {
	content, err := os.ReadFile(filepath.Join(c.dataDir(), "postmaster.pid"))
	if err != nil {
		return err
	}
	lines := strings.Split(string(content), "\n")
	if len(lines) < 8 || lines[0] != strconv.Itoa(c.server.PID) || strings.TrimSpace(lines[7]) != "ready" {
		return fmt.Errorf("postmaster.pid says %q", lines)
	}
	return nil
}

func (c *Cluster) running() bool { return c.server != nil && !c.server.Ended() }

// Shutdown shuts the server down and returns when it has ended. Resume starts it again. A
// frozen server must be thawed first. If ctx ends first, the shutdown goes on.
func (c *Cluster) Shutdown(ctx context.Context, mode Mode) error {
	if !c.running() {
		return errors.New("pgcluster: the server is down already")
	}
	if err := syscall.Kill(c.server.PID, syscall.Signal(mode)); err != nil {
		return fmt.Errorf("pgcluster: signal the server: %w", err)
	}
	select {
	case <-c.server.Done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pgcluster: the server has not shut down yet: %w", context.Cause(ctx))
	}
}

// Resume starts a server after Shutdown or Kill, on the same port, and returns when it accepts
// connections.
func (c *Cluster) Resume(ctx context.Context) error {
	if c.running() {
		return errors.New("pgcluster: the server is running; shut it down before Resume")
	}
	return c.boot(ctx)
}

// Restart calls Shutdown and Resume.
func (c *Cluster) Restart(ctx context.Context, mode Mode) error {
	if err := c.Shutdown(ctx, mode); err != nil {
		return err
	}
	return c.Resume(ctx)
}

// Conn opens a connection to the database "postgres" as superuser. The caller must close it.
func (c *Cluster) Conn(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, c.DSN(WithParam("application_name", "pgcluster")))
	if err != nil {
		return nil, fmt.Errorf("pgcluster: %w", err)
	}
	return conn, nil
}

// Exec runs a statement in the database "postgres" as superuser, on a new connection.
func (c *Cluster) Exec(ctx context.Context, sql string, args ...any) error {
	conn, err := c.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	return nil
}

// CreateDatabase creates a database. ForDatabase makes a DSN for it.
func (c *Cluster) CreateDatabase(ctx context.Context, name string) error {
	return c.Exec(ctx, "CREATE DATABASE "+quoteIdent(name))
}

// CreateRole creates a role that can log in and has no other privileges. settings are its
// defaults, as set by ALTER ROLE … SET. ForRole makes a DSN for it.
func (c *Cluster) CreateRole(ctx context.Context, name string, settings map[string]string) error {
	conn, err := c.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE ROLE "+quoteIdent(name)+" LOGIN"); err != nil {
		return fmt.Errorf("pgcluster: create role %s: %w", name, err)
	}
	for _, setting := range slices.Sorted(maps.Keys(settings)) {
		// ALTER ROLE takes no parameters, so the server quotes and builds the statement.
		var statement string
		err := conn.QueryRow(ctx, "SELECT format('ALTER ROLE %I SET %I = %L', $1::text, $2::text, $3::text)",
			name, setting, settings[setting]).Scan(&statement)
		if err == nil {
			_, err = conn.Exec(ctx, statement)
		}
		if err != nil {
			return fmt.Errorf("pgcluster: set %s of role %s: %w", setting, name, err)
		}
	}
	return nil
}

func quoteIdent(name string) string { return pgx.Identifier{name}.Sanitize() }

// DSNOption changes a DSN.
type DSNOption func(*url.URL)

// ForRole connects as the role instead of as superuser.
func ForRole(name string) DSNOption {
	return func(u *url.URL) { u.User = url.User(name) }
}

// ForDatabase connects to the database instead of "postgres".
func ForDatabase(name string) DSNOption {
	return func(u *url.URL) { u.Path = "/" + name }
}

// WithParam adds a connection parameter, such as application_name or connect_timeout. The
// driver sends an unknown parameter to the server, as a setting of the session.
func WithParam(name, value string) DSNOption {
	return func(u *url.URL) {
		params := u.Query()
		params.Set(name, value)
		// libpq and pgx read a plus sign as a plus sign, not as a space.
		u.RawQuery = strings.ReplaceAll(params.Encode(), "+", "%20")
	}
}

// DSN returns a postgres:// URL of the server that both lib/pq and pgx accept. The defaults
// are the superuser and the database "postgres".
func (c *Cluster) DSN(opts ...DSNOption) string { return dsn(c.Addr(), opts) }

func dsn(addr string, opts []DSNOption) string {
	u := &url.URL{Scheme: "postgres", Host: addr, User: url.User(superuser), Path: "/" + maintenanceDB}
	for _, opt := range append([]DSNOption{WithParam("sslmode", "disable")}, opts...) {
		opt(u)
	}
	return u.String()
}

// errDown is returned by faults that need a running server.
var errDown = errors.New("pgcluster: the server is down; Resume starts it")

// Kill ends the postmaster and every backend with SIGKILL, as a crash of the machine would,
// and returns when they have ended. Resume starts the server again.
func (c *Cluster) Kill() error {
	if !c.running() {
		return errDown
	}
	err := sandbox.Kill(c.server.PID)
	<-c.server.Done
	return err
}

// KillBackend ends one backend with SIGKILL, as the out-of-memory killer does. The server then
// ends all other sessions and goes through crash recovery; WaitReady waits until it is ready. It
// refuses a process that is not a backend of this server, so that a wrong id does no harm.
func (c *Cluster) KillBackend(pid int) error {
	if !c.running() {
		return errDown
	}
	children, err := sandbox.ChildrenOf(c.server.PID)
	if err != nil {
		return err
	}
	if !slices.Contains(children, pid) {
		return fmt.Errorf("pgcluster: process %d is not a backend of this server", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("pgcluster: kill backend %d: %w", pid, err)
	}
	return nil
}

// Freeze stops every process of the server with SIGSTOP: connections stay open and nothing
// answers.
func (c *Cluster) Freeze() error {
	if !c.running() {
		return errDown
	}
	_, err := sandbox.Freeze(c.server.PID)
	return err
}

// Thaw resumes a frozen server. It does nothing to a running one.
func (c *Cluster) Thaw() error {
	if !c.running() {
		return errDown
	}
	return sandbox.Thaw(c.server.PID)
}

// ErrNoClock is returned by Start when WithClock is not available.
var ErrNoClock = errors.New("pgcluster: a server's clock is set by a preloaded C library, which needs Linux and a C compiler; " +
	"install one (Debian and Ubuntu: apt-get install gcc libc6-dev)")

//go:embed clock/clock.c
var clockSource string

// WithClock makes the server's wall clock settable with SetClock. Its standbys use the
// machine's clock.
func WithClock() Option {
	return func(o *options) { o.clock = true }
}

// SetClock sets the server's wall clock to the machine's clock plus the offset, in all its
// processes at once. As with a real clock, the monotonic clock and running timers do not
// change. The cluster must have been started WithClock.
func (c *Cluster) SetClock(offset time.Duration) error {
	file, err := os.OpenFile(c.clockFile(), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("pgcluster: set the clock of a server that was started WithClock: %w", err)
	}
	// A write of eight aligned bytes is atomic: the server sees the old offset or the new one.
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset)), 0)
	return errors.Join(err, file.Close())
}

// preloadClock builds the library and makes later starts of the server load it.
func (c *Cluster) preloadClock(ctx context.Context) error {
	compiler, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		return ErrNoClock
	}
	source, library := c.box.Path("clock.c"), c.box.Path("clock.so")
	if err := errors.Join(c.box.WriteFile(source, clockSource), c.box.WriteFile(c.clockFile(), "\x00\x00\x00\x00\x00\x00\x00\x00")); err != nil {
		return err
	}
	if err := c.box.Run(ctx, compiler, "-shared", "-fPIC", "-O1", "-o", library, source); err != nil {
		return fmt.Errorf("%w: %w", ErrNoClock, err)
	}
	c.preload = []string{"LD_PRELOAD=" + library, "CLOCK_OFFSET_FILE=" + c.clockFile()}
	return nil
}

func (c *Cluster) clockFile() string { return c.box.Path("clock") }
