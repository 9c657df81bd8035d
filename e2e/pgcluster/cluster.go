//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/pgelector/pgelector/e2e/sandbox"
	"sync"
)

// superuser is the role that owns every cluster, and maintenanceDB the database that it starts with.
const (
	superuser     = "postgres"
	maintenanceDB = "postgres"
)

// Cluster is a PostgreSQL server with its directory. Its methods must not be called concurrently.
type Cluster struct {
	box      *sandbox.Sandbox
	bin      binaries
	settings []setting // those asked for by WithSetting; a standby inherits them
	port     int
	preload  []string         // variables of the server's environment: see WithClock
	server   *sandbox.Process // the postmaster: running, ended, or nil before the first start

	mu         sync.Mutex     // tests share a cluster
	dependents []func() error // stop what was put in front of or behind this cluster
	detached   bool           // not stopped by the cluster that it was made from
}

// addDependent has stop called when the cluster stops.
func (c *Cluster) addDependent(stop func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dependents = append(c.dependents, stop)
}

// Start starts a cluster on a free port of 127.0.0.1, in a directory of its own, and returns when it
// accepts connections. The caller must call Stop. On failure, nothing is left running or on disk.
//
// PostgreSQL 14 or newer is looked for in $PGELECTOR_PG_BIN, $PATH, the places where systems install it,
// and what pg_config names; an ordinary user who has none gets it downloaded once, into the user cache.
// ErrNoPostgres is returned when there is none to be had.
func Start(ctx context.Context, opts ...Option) (*Cluster, error) {
	chosen, err := collect(opts)
	if err != nil {
		return nil, err
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

// assemble makes a cluster in a new sandbox, and stops it if build fails or panics.
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

// Stop ends the server, at once and in whatever state it is, and with it its standbys, poolers and
// proxies, and removes the directory. Calls after the first do nothing and return what the first did.
func (c *Cluster) Stop() error {
	var errs []error
	for _, stop := range c.dependents {
		errs = append(errs, stop())
	}
	// The reaper wakes the postmaster but does not know its backends, which would be waited for.
	if c.running() {
		c.Thaw()
	}
	return errors.Join(append(errs, c.box.Destroy())...)
}

// Port returns the port that the server listens on. Restarts keep it.
func (c *Cluster) Port() int { return c.port }

// Addr returns the host and port that the server listens on.
func (c *Cluster) Addr() string { return net.JoinHostPort(sandbox.Loopback, strconv.Itoa(c.port)) }

// Dir returns the cluster's directory. The server's own, PGDATA, is "data" in it.
func (c *Cluster) Dir() string { return c.box.Dir() }

// PID returns the process id of the postmaster, the last one if the server is down.
func (c *Cluster) PID() int {
	if c.server == nil {
		return 0
	}
	return c.server.PID
}

// ServerLog returns everything that the server has logged, through all its restarts. A line has the form
// "<time> UTC [<pid>] <role>@<database> ERROR:  <message>".
func (c *Cluster) ServerLog() (string, error) {
	content, err := os.ReadFile(c.logFile())
	if err != nil {
		return "", fmt.Errorf("pgcluster: %w", err)
	}
	return string(content), nil
}

func (c *Cluster) dataDir() string { return c.box.Path("data") }
func (c *Cluster) logFile() string { return c.box.Path("server.log") }
