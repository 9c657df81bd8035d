//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// ErrNoProgram is returned where a program is needed that the smaller distributions of PostgreSQL lack.
var ErrNoProgram = errors.New("pgcluster: this distribution of PostgreSQL is not complete")

// program returns the path of one of PostgreSQL's programs.
func (b binaries) program(name string) (string, error) {
	path, err := exec.LookPath(b.path(name))
	if err != nil {
		return "", fmt.Errorf("%w: it has no %s", ErrNoProgram, name)
	}
	return path, nil
}

// Upgrade shuts the server down and returns a new cluster to which pg_upgrade has moved the data: of the same
// version, but on timeline 1, as after every pg_upgrade. The old one must not be started again. The new one
// has its settings, and is stopped by its Stop at the latest.
func (c *Cluster) Upgrade(ctx context.Context) (*Cluster, error) {
	upgrade, err := c.bin.program("pg_upgrade")
	if err != nil {
		return nil, err
	}
	if err := c.Shutdown(ctx, Fast); err != nil {
		return nil, err
	}
	return c.derive(func(n *Cluster) error {
		dir := n.box.Path("upgrade") // of its sockets and its reports
		if err := errors.Join(n.initialize(ctx), n.box.Mkdir(dir)); err != nil {
			return err
		}
		if err := n.box.RunIn(ctx, dir, upgrade, "--old-bindir", string(c.bin), "--new-bindir", string(c.bin),
			"--old-datadir", c.dataDir(), "--new-datadir", n.dataDir(), "--socketdir", dir, "--username", superuser); err != nil {
			return err
		}
		return n.firstBoot(ctx)
	})
}

// DumpAndRestore returns a new cluster into which pg_dumpall and psql have copied all databases and roles. The
// old one goes on. The new one has its settings, and is stopped by its Stop at the latest.
func (c *Cluster) DumpAndRestore(ctx context.Context) (*Cluster, error) {
	dump, dumpErr := c.bin.program("pg_dumpall")
	restore, restoreErr := c.bin.program("psql")
	if err := errors.Join(dumpErr, restoreErr); err != nil {
		return nil, err
	}
	return c.derive(func(n *Cluster) error {
		if err := errors.Join(n.initialize(ctx), n.firstBoot(ctx)); err != nil {
			return err
		}
		file := n.box.Path("dump.sql")
		if err := n.box.Run(ctx, dump, "--dbname", c.DSN(), "--file", file); err != nil {
			return err
		}
		// The role that owns the cluster is there already, so one statement fails.
		return n.box.Run(ctx, restore, "--no-psqlrc", "--quiet", "--dbname", n.DSN(), "--file", file)
	})
}

// AddStandby starts a hot standby that streams from the cluster, and returns when it accepts connections.
// It has the same settings, is stopped by the cluster's Stop at the latest, and is a Cluster in every
// respect: it can be frozen, proxied, promoted, and have standbys of its own. Standbys have no replication
// slot: one that misses more than 128 MB of WAL cannot catch up.
func (c *Cluster) AddStandby(ctx context.Context) (*Cluster, error) {
	return c.derive(func(s *Cluster) error {
		if err := c.backUp(ctx, s); err != nil {
			return err
		}
		return s.firstBoot(ctx)
	})
}

// derive makes a cluster from this one, whose Stop stops it at the latest.
func (c *Cluster) derive(build func(*Cluster) error) (*Cluster, error) {
	derived, err := assemble(c.bin, c.settings, build)
	if err != nil {
		return nil, err
	}
	c.addDependent(func() error {
		if derived.detached {
			return nil
		}
		return derived.Stop()
	})
	return derived, nil
}

// Detach makes a standby, promoted or not, independent of the cluster that it was
// made from: that one's Stop does not stop it any more, and the caller must. So it
// does with what Upgrade and DumpAndRestore return.
func (c *Cluster) Detach() { c.detached = true }

// Promote makes a standby a primary and returns when it has left recovery. It does nothing to the old
// primary.
func (c *Cluster) Promote(ctx context.Context) error {
	conn, err := c.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_promote(wait => false)"); err != nil {
		return fmt.Errorf("pgcluster: promote: %w", err)
	}
	for {
		var inRecovery bool
		if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&inRecovery); err != nil {
			return fmt.Errorf("pgcluster: promote: %w", err)
		}
		if !inRecovery {
			return nil
		}
		select {
		case <-time.After(readyPoll):
		case <-ctx.Done():
			return fmt.Errorf("pgcluster: the standby is still in recovery: %w", context.Cause(ctx))
		}
	}
}
