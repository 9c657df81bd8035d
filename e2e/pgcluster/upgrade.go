//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
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
