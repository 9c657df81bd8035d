//go:build unix

// Package pgcluster starts throw-away PostgreSQL clusters for the demo, the end-to-end tests and the
// benchmarks. It can inject every fault that a leader election must survive: restart, crash, freeze, failover
// to a standby, a cut network, a pooler in between.
//
// Never keep data in such a cluster: fsync is off, and every local user may connect as superuser.
//
// # A cluster
//
//	c, err := pgcluster.Start(ctx)   // takes about 0.3 s; the first start on a machine takes longer
//	defer c.Stop()                   // ends its processes and removes its directory
//	db, err := sql.Open("pgx", c.DSN())
//
// It listens on 127.0.0.1 only, on a free port that it keeps through restarts. Its directory:
//
//	$TMPDIR/pgelector-<random>/
//	    data/         PGDATA
//	    server.log    what ServerLog returns
//	    run/<pid>     one empty file per process that runs here
//
// Methods of the same object must not run concurrently.
//
// # Clean-up
//
// Each cluster lives in a sandbox (package sandbox). The sandbox's reaper ends the processes and removes the
// directory when Stop is called, and also when this process ends in any way: return, panic, Ctrl-C, kill -9.
//
//	Go process ──pipe──▶ reaper (own session) ──SIGQUIT, SIGKILL──▶ postmaster (own session) ─▶ backends
//
// Only the initdb template and a downloaded PostgreSQL are kept, in the user's cache directory: they make the
// next start fast (see binaries.go).
//
// The package builds on Unix systems only.
package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// superuser is the role that owns every cluster, and maintenanceDB the database that it starts with.
const (
	superuser     = "postgres"
	maintenanceDB = "postgres"
)

// Cluster is a PostgreSQL server and its directory. Its methods must not be called
// concurrently.
type Cluster struct {
	box      *sandbox.Sandbox
	bin      binaries
	settings []setting // from WithSetting; standbys inherit them
	port     int
	preload  []string         // environment variables of the server: see WithClock
	server   *sandbox.Process // the postmaster: running, ended, or nil before the first start

	mu         sync.Mutex     // tests share a cluster
	dependents []func() error // stop the poolers, proxies and derived clusters
	detached   bool           // the original cluster does not stop it
}

// addDependent makes Stop call stop.
func (c *Cluster) addDependent(stop func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dependents = append(c.dependents, stop)
}

// Start starts a cluster on a free port of 127.0.0.1, in a new temporary directory, and
// returns when it accepts connections. The caller must call Stop. On failure nothing is left
// behind.
//
// Start looks for PostgreSQL 14 or newer in $PGELECTOR_PG_BIN, $PATH, the usual installation
// directories, and pg_config's directory. For an ordinary user it otherwise downloads
// PostgreSQL once, into the user's cache. It returns ErrNoPostgres if it finds none.
func Start(ctx context.Context, opts ...Option) (*Cluster, error) {
	var chosen options
	for _, opt := range opts {
		opt(&chosen)
	}
	bin, err := findBinaries(ctx)
	if err != nil {
		return nil, err
	}
	return assemble(bin, chosen.settings, func(c *Cluster) error {
		if err := c.initialize(ctx); err != nil {
			return err
		}
		if chosen.clock {
			if err := c.preloadClock(ctx); err != nil {
				return err
			}
		}
		return c.firstBoot(ctx)
	})
}

// assemble makes a cluster in a new sandbox. It stops the cluster if build fails or panics.
func assemble(bin binaries, settings []setting, build func(*Cluster) error) (_ *Cluster, err error) {
	box, err := sandbox.New()
	if err != nil {
		return nil, err
	}
	c := &Cluster{box: box, bin: bin, settings: settings}
	built := false
	defer func() {
		if !built {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := build(c); err != nil {
		return nil, err
	}
	built = true
	return c, nil
}

// Stop ends the server at once, in whatever state it is, and its standbys, poolers and
// proxies, and removes the directory. Later calls return the result of the first.
func (c *Cluster) Stop() error {
	var errs []error
	for _, stop := range c.dependents {
		errs = append(errs, stop())
	}
	// The reaper resumes the postmaster but not its backends, and would wait for them.
	if c.running() {
		c.Thaw()
	}
	return errors.Join(append(errs, c.box.Destroy())...)
}

// Port returns the port that the server listens on. Restarts keep it.
func (c *Cluster) Port() int { return c.port }

// Addr returns the host and port that the server listens on.
func (c *Cluster) Addr() string { return net.JoinHostPort(sandbox.Loopback, strconv.Itoa(c.port)) }

// Dir returns the cluster's directory. PGDATA is its subdirectory "data".
func (c *Cluster) Dir() string { return c.box.Dir() }

// PID returns the process id of the postmaster: the last one, if the server is down.
func (c *Cluster) PID() int {
	if c.server == nil {
		return 0
	}
	return c.server.PID
}

// ServerLog returns the server's log since Start, across restarts. A line has the form "<time>
// UTC [<pid>] <role>@<database> ERROR:  <message>".
func (c *Cluster) ServerLog() (string, error) {
	content, err := os.ReadFile(c.logFile())
	if err != nil {
		return "", fmt.Errorf("pgcluster: %w", err)
	}
	return string(content), nil
}

func (c *Cluster) dataDir() string { return c.box.Path("data") }
func (c *Cluster) logFile() string { return c.box.Path("server.log") }

// Option configures a cluster.
type Option func(*options)

type options struct {
	settings []setting
	clock    bool // see WithClock
}

// setting is one line of a postgresql.conf.
type setting struct{ name, value string }

// WithSetting sets a server setting, as in postgresql.conf: WithSetting("max_connections",
// "20"). The last value counts; ALTER SYSTEM overrides it. Start chooses port,
// listen_addresses, unix_socket_directories and data_directory.
func WithSetting(name, value string) Option {
	return func(o *options) { o.settings = append(o.settings, setting{name, value}) }
}

// throwAway are the settings of every cluster.
var throwAway = []setting{
	{"listen_addresses", sandbox.Loopback},
	{"unix_socket_directories", ""},
	// Speed instead of durability, and little memory.
	{"fsync", "off"},
	{"full_page_writes", "off"},
	{"shared_buffers", "16MB"},
	// In files below the data directory, which are removed with it even after kill -9.
	{"dynamic_shared_memory_type", "mmap"},
	// Standbys have no slot: keep enough WAL for one that was away, and reconnect quickly.
	{"wal_level", "replica"},
	{"max_wal_senders", "10"},
	{"wal_keep_size", "128MB"},
	{"wal_retrieve_retry_interval", "100ms"},
	// The log goes to standard error and so to server.log.
	{"logging_collector", "off"},
	{"log_destination", "stderr"},
	{"log_line_prefix", "%m [%p] %q%u@%d "},
	{"timezone", "UTC"},
	{"log_timezone", "UTC"},
}

// confLines formats settings for postgresql.conf.
func confLines(settings []setting) string {
	quote := strings.NewReplacer(`'`, `''`, `\`, `\\`)
	var b strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&b, "%s = '%s'\n", s.name, quote.Replace(s.value))
	}
	return b.String()
}

// Shared is one cluster for all the tests of a package, started when the first test asks for it:
//
//	var shared = pgcluster.NewShared()
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }
//	func TestX(t *testing.T)    { c := shared.Get(t) … }
//
// Parallel tests may share it if only one of them calls methods other than DSN, Proxy and Bouncer, and none
// breaks it for the others.
type Shared struct {
	start func() (*Cluster, error)
	stop  func() error
}

// NewShared returns a Shared that starts its cluster with the options.
func NewShared(opts ...Option) *Shared {
	var cluster *Cluster
	return &Shared{
		start: sync.OnceValues(func() (c *Cluster, err error) {
			cluster, err = Start(context.Background(), opts...)
			return cluster, err
		}),
		stop: func() error {
			if cluster == nil {
				return nil
			}
			return cluster.Stop()
		},
	}
}

// Get returns the cluster. It calls t.Fatal if the cluster cannot be started.
func (s *Shared) Get(t interface {
	Helper()
	Fatal(args ...any)
}) *Cluster {
	t.Helper()
	c, err := s.start()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Runner is the part of *testing.M that Around needs. This package does not import testing.
type Runner interface{ Run() int }

// Around returns a Runner that runs the tests of m and then stops the cluster.
func (s *Shared) Around(m Runner) Runner { return around{s, m} }

type around struct {
	shared *Shared
	tests  Runner
}

// Run runs the tests and stops the cluster, even if a test panics.
func (a around) Run() (code int) {
	defer func() {
		if err := a.shared.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	return a.tests.Run()
}
