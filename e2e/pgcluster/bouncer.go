//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// ErrNoBouncer is returned by Cluster.Bouncer when pgbouncer is not installed.
var ErrNoBouncer = errors.New("pgcluster: pgbouncer is not installed; " +
	"install it (Debian and Ubuntu: apt-get install pgbouncer; macOS: brew install pgbouncer)")

// PoolMode says when pgbouncer may give a server connection to another client.
type PoolMode string

// Pool modes of pgbouncer.
const (
	Session     PoolMode = "session"
	Transaction PoolMode = "transaction"
	Statement   PoolMode = "statement"
)

// BouncerOption configures a Bouncer.
type BouncerOption func(*[]setting)

// WithPoolSize sets how many server connections each pair of role and database shares. The
// default is 2, so that few clients suffice to share one.
func WithPoolSize(n int) BouncerOption {
	return WithBouncerSetting("default_pool_size", strconv.Itoa(n))
}

// WithBouncerSetting sets a setting in the section [pgbouncer] of pgbouncer.ini. The last
// value of a setting counts.
func WithBouncerSetting(name, value string) BouncerOption {
	return func(settings *[]setting) { *settings = append(*settings, setting{name, value}) }
}

// Bouncer is a pgbouncer in front of a server. Its methods must not be called concurrently.
type Bouncer struct {
	box      *sandbox.Sandbox
	program  string
	upstream string // host and port
	settings []setting
	port     int
	process  *sandbox.Process
	shield   *Proxy // usually nil
}

// Bouncer starts a pgbouncer in front of the server. Every role may use it without a password.
// Stop, or the cluster's Stop, ends it. It returns ErrNoBouncer if pgbouncer is not installed.
func (c *Cluster) Bouncer(ctx context.Context, mode PoolMode, opts ...BouncerOption) (*Bouncer, error) {
	b, err := NewBouncer(ctx, c.Addr(), mode, opts...)
	if err == nil {
		c.addDependent(b.Stop)
	}
	return b, err
}

// NewBouncer starts a pgbouncer in front of the server at upstream, a host and a port. The
// caller must call Stop. It returns ErrNoBouncer if pgbouncer is not installed.
func NewBouncer(ctx context.Context, upstream string, mode PoolMode, opts ...BouncerOption) (_ *Bouncer, err error) {
	program, err := findBouncer()
	if err != nil {
		return nil, err
	}
	box, err := sandbox.New()
	if err != nil {
		return nil, err
	}
	b := &Bouncer{box: box, program: program, upstream: upstream, settings: []setting{{"pool_mode", string(mode)}}}
	started := false
	defer func() {
		if !started {
			err = errors.Join(err, b.Stop())
		}
	}()
	for _, opt := range opts {
		opt(&b.settings)
	}
	if err := b.firstStart(ctx); err != nil {
		return nil, err
	}
	started = true
	return b, nil
}

func findBouncer() (string, error) {
	path, err := sandbox.Find("pgbouncer")
	if err != nil {
		return "", ErrNoBouncer
	}
	return path, nil
}

// Addr returns the host and port that pgbouncer, or the proxy before it, listens on.
func (b *Bouncer) Addr() string {
	if b.shield != nil {
		return b.shield.Addr()
	}
	return net.JoinHostPort(sandbox.Loopback, strconv.Itoa(b.port))
}

// DSN returns a URL, as Cluster.DSN does, for connections through pgbouncer.
func (b *Bouncer) DSN(opts ...DSNOption) string { return dsn(b.Addr(), opts) }

// Stop ends pgbouncer and removes its directory. It is idempotent.
func (b *Bouncer) Stop() error {
	if b.shield == nil {
		return b.box.Destroy()
	}
	return errors.Join(b.shield.Close(), b.box.Destroy())
}

// Restart ends pgbouncer, and with it every connection through it, and starts it again on the
// same port.
func (b *Bouncer) Restart(ctx context.Context) error {
	if !b.process.Ended() {
		syscall.Kill(b.process.PID, syscall.SIGQUIT)
	}
	select {
	case <-b.process.Done:
		return b.start(ctx)
	case <-ctx.Done():
		return fmt.Errorf("pgcluster: pgbouncer has not ended yet: %w", context.Cause(ctx))
	}
}

// Ended returns a channel that is closed when the current pgbouncer process has ended, for any
// reason.
func (b *Bouncer) Ended() <-chan struct{} { return b.process.Done }

// Fate tells how pgbouncer has ended, and the end of its log.
func (b *Bouncer) Fate() string {
	return fmt.Sprintf("pgbouncer has ended (%v); its log:\n%s", b.process.Err, sandbox.Tail(b.logFile()))
}

// ShieldCancels starts a proxy before pgbouncer. From then on Addr and DSN lead to the proxy. If a client has sent a
// cancel request and goes away, the proxy keeps the connection to pgbouncer open. Version 1.18 ends itself ("bad
// client state") if a client goes away while its cancel request is sent to the server (pgbouncer issue 801). Each
// process that ends during a statement does that.
func (b *Bouncer) ShieldCancels(ctx context.Context) (err error) {
	b.shield, err = newProxy(ctx, b.Addr(), true)
	return err
}

// Log returns the log of pgbouncer.
func (b *Bouncer) Log() (string, error) {
	content, err := os.ReadFile(b.logFile())
	return string(content), err
}

func (b *Bouncer) logFile() string { return b.box.Path("pgbouncer.log") }

// firstStart configures pgbouncer for a free port and starts it.
func (b *Bouncer) firstStart(ctx context.Context) error {
	if err := b.box.WriteFile(b.box.Path("users.txt"), `"`+superuser+`" ""`+"\n"); err != nil {
		return err
	}
	return sandbox.OnFreePorts(ctx, func() error {
		if err := b.box.WriteFile(b.box.Path("pgbouncer.ini"), b.config()); err != nil {
			return err
		}
		return b.start(ctx)
	}, &b.port)
}

func (b *Bouncer) config() string {
	settings := append([]setting{
		{"listen_addr", sandbox.Loopback},
		{"listen_port", strconv.Itoa(b.port)},
		{"unix_socket_dir", ""},
		// Every role may connect: auth_user looks up the client's role on the server.
		{"auth_type", "trust"},
		{"auth_file", b.box.Path("users.txt")},
		{"auth_user", superuser},
		{"admin_users", superuser},
		{"default_pool_size", "2"},
		{"max_client_conn", "200"},
		// Drivers send the first parameter; programs put the others into a DSN. pgbouncer refuses
		// a startup parameter that it neither tracks nor is configured to ignore.
		{"ignore_startup_parameters", "extra_float_digits,search_path,statement_timeout,lock_timeout," +
			"idle_session_timeout,idle_in_transaction_session_timeout,default_query_exec_mode"},
		// Seconds before the next attempt to reach an unreachable server. The default is 15.
		{"server_login_retry", "0.2"},
	}, b.settings...)
	var ini strings.Builder
	host, port, _ := net.SplitHostPort(b.upstream)
	fmt.Fprintf(&ini, "[databases]\n* = host=%s port=%s\n[pgbouncer]\n", host, port)
	for _, s := range settings {
		fmt.Fprintf(&ini, "%s = %s\n", s.name, s.value)
	}
	return ini.String()
}

// start starts pgbouncer and waits until it accepts connections.
func (b *Bouncer) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	process, err := b.box.Start(b.logFile(), b.program, b.box.Path("pgbouncer.ini"))
	if err != nil {
		return err
	}
	b.process = process
	return process.AwaitReady(ctx, b.logFile(), b.answers)
}

// answers connects to pgbouncer's console, which does not need the server.
func (b *Bouncer) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return b.Console(ctx, "SHOW VERSION")
}

// Console sends a command to pgbouncer's console, such as PAUSE, and waits until it is done.
func (b *Bouncer) Console(ctx context.Context, command string) error {
	conn, err := pgx.Connect(ctx, b.DSN(ForDatabase("pgbouncer"), WithParam("default_query_exec_mode", "simple_protocol")))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, command)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}
