//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ErrNoProgram is returned when a required program is missing: the smaller distributions of
// PostgreSQL lack some.
var ErrNoProgram = errors.New("pgcluster: this distribution of PostgreSQL is not complete")

// program returns the path of one of PostgreSQL's programs.
func (b binaries) program(name string) (string, error) {
	path, err := exec.LookPath(b.path(name))
	if err != nil {
		return "", fmt.Errorf("%w: it has no %s", ErrNoProgram, name)
	}
	return path, nil
}

// Upgrade shuts the server down and returns a new cluster with the data, moved by pg_upgrade:
// the same version, but timeline 1, as after every pg_upgrade. The old cluster must not be
// started again. The new one has the same settings. The old cluster's Stop also stops the new
// one.
func (c *Cluster) Upgrade(ctx context.Context) (*Cluster, error) {
	upgrade, err := c.bin.program("pg_upgrade")
	if err != nil {
		return nil, err
	}
	if err := c.Shutdown(ctx, Fast); err != nil {
		return nil, err
	}
	return c.derive(func(n *Cluster) error {
		dir := n.box.Path("upgrade") // for pg_upgrade's sockets and reports
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

// DumpAndRestore returns a new cluster with all databases and roles, copied by pg_dumpall and
// psql. The old cluster keeps running. The new one has the same settings. The old cluster's
// Stop also stops the new one.
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
		// One statement fails: the role that owns the cluster already exists.
		return n.box.Run(ctx, restore, "--no-psqlrc", "--quiet", "--dbname", n.DSN(), "--file", file)
	})
}

// AddStandby starts a hot standby that streams from the cluster, and returns when it accepts
// connections. The standby has the same settings. It is a Cluster in every respect: it can be
// frozen, proxied and promoted, and have standbys. The cluster's Stop also stops it. It has no
// replication slot: a standby that misses more than 128 MB of WAL cannot catch up.
func (c *Cluster) AddStandby(ctx context.Context) (*Cluster, error) {
	return c.derive(func(s *Cluster) error {
		if err := c.backUp(ctx, s); err != nil {
			return err
		}
		return s.firstBoot(ctx)
	})
}

// derive makes a cluster that this cluster's Stop also stops.
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

// Detach makes a derived cluster (of AddStandby, Upgrade or DumpAndRestore) independent: the
// original cluster's Stop no longer stops it, and the caller must.
func (c *Cluster) Detach() { c.detached = true }

// Promote promotes a standby and returns when it has left recovery. It does nothing to the old
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

// backUp copies the running cluster into s, its new standby, with the low-level backup API
// (PostgreSQL manual, 26.3.3). pg_basebackup would do the same, but the smaller distributions
// of PostgreSQL lack it. The standby streams the WAL, so backUp does not copy it.
func (c *Cluster) backUp(ctx context.Context, s *Cluster) error {
	conn, err := c.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var old bool // PostgreSQL 15 renamed the functions
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int < 150000").Scan(&old); err != nil {
		return fmt.Errorf("pgcluster: back up: %w", err)
	}
	start, stop := "SELECT pg_backup_start('standby', true)", "SELECT labelfile FROM pg_backup_stop(false)"
	if old {
		start, stop = "SELECT pg_start_backup('standby', true, false)", "SELECT labelfile FROM pg_stop_backup(false, false)"
	}
	if _, err := conn.Exec(ctx, start); err != nil {
		return fmt.Errorf("pgcluster: begin the backup: %w", err)
	}
	if err := s.copyFrom(c.dataDir()); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, stop).Scan(&label); err != nil {
		return fmt.Errorf("pgcluster: end the backup: %w", err)
	}
	return errors.Join(
		s.box.WriteFile(filepath.Join(s.dataDir(), "backup_label"), label),
		s.box.WriteFile(filepath.Join(s.dataDir(), "standby.signal"), ""),
		s.configure([]setting{{"primary_conninfo", c.DSN()}}),
	)
}

// notCopied reports whether a file belongs to the running server only.
func notCopied(name string, d fs.DirEntry) bool {
	switch dir, file := filepath.Split(name); {
	case file == "postmaster.pid" || file == "postmaster.opts" || strings.HasPrefix(file, "pgsql_tmp"):
		return true
	default:
		return !d.IsDir() && strings.HasPrefix(dir, walDir)
	}
}

// copyFrom copies the data directory of a running server.
func (s *Cluster) copyFrom(dataDir string) error {
	if err := s.copyTree(dataDir, s.dataDir(), notCopied); err != nil {
		return fmt.Errorf("pgcluster: copy the data directory: %w", err)
	}
	return nil
}

// copyTree copies a directory. Files may disappear meanwhile.
func (s *Cluster) copyTree(from, to string, notCopied func(name string, d fs.DirEntry) bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil || notCopied(name, d) {
			return err
		}
		target := filepath.Join(to, name)
		if d.IsDir() || name == walDir { // walDir may be a link, see MoveWAL
			return s.box.Mkdir(target)
		}
		return s.copyFile(path, target)
	})
}

func (s *Cluster) copyFile(path, target string) error {
	from, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close(), s.box.Own(target))
}

// walDir is the directory of the write-ahead log in PGDATA.
const walDir = "pg_wal"

// MoveWAL moves the write-ahead log of a stopped server into an empty directory, for instance
// on a small file system that a test can fill. The caller must remove the directory after
// Stop. A standby of the cluster has its log in its own data directory.
func (c *Cluster) MoveWAL(dir string) error {
	if c.running() {
		return errors.New("pgcluster: the server is running; shut it down before MoveWAL")
	}
	from := filepath.Join(c.dataDir(), walDir)
	if err := errors.Join(os.Chmod(dir, 0o700), c.box.Own(dir)); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	if err := c.copyTree(from, dir, func(name string, _ fs.DirEntry) bool { return name == "." }); err != nil {
		return fmt.Errorf("pgcluster: move the write-ahead log: %w", err)
	}
	if err := errors.Join(os.RemoveAll(from), os.Symlink(dir, from)); err != nil {
		return fmt.Errorf("pgcluster: move the write-ahead log: %w", err)
	}
	return c.box.Own(from)
}
