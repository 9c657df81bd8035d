//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// backUp copies the running cluster into s, as its standby, by the low-level backup API (PostgreSQL
// manual, 26.3.3). pg_basebackup would do the same, but the smaller distributions of PostgreSQL lack it.
// The WAL is not copied: the standby streams it.
func (c *Cluster) backUp(ctx context.Context, s *Cluster) error {
	conn, err := c.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var old bool // the functions were renamed in 15
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

// notCopied are what belongs to the running server alone.
func notCopied(name string, d fs.DirEntry) bool {
	switch dir, file := filepath.Split(name); {
	case file == "postmaster.pid" || file == "postmaster.opts" || strings.HasPrefix(file, "pgsql_tmp"):
		return true
	default:
		return !d.IsDir() && strings.HasPrefix(dir, walDir)
	}
}

// copyFrom copies a data directory whose server runs: files may vanish meanwhile.
func (s *Cluster) copyFrom(dataDir string) error {
	err := filepath.WalkDir(dataDir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dataDir, path)
		if err != nil || notCopied(name, d) {
			return err
		}
		target := filepath.Join(s.dataDir(), name)
		if d.IsDir() || name == walDir { // which may be a link, see MoveWAL
			return s.box.Mkdir(target)
		}
		return s.copyFile(path, target)
	})
	if err != nil {
		return fmt.Errorf("pgcluster: copy the data directory: %w", err)
	}
	return nil
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

// walDir is where the write-ahead log is, in PGDATA.
const walDir = "pg_wal"

// MoveWAL moves the write-ahead log of a server that is down into an empty
// directory, for instance on a file system of its own that can be filled. The
// caller must remove the directory, after Stop. A standby that is made of the
// cluster has its log in its own directory.
func (c *Cluster) MoveWAL(dir string) error {
	if c.running() {
		return errors.New("pgcluster: the server is running; shut it down before MoveWAL")
	}
	from := filepath.Join(c.dataDir(), walDir)
	if err := errors.Join(os.Chmod(dir, 0o700), c.box.Own(dir)); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == from {
			return err
		}
		target := filepath.Join(dir, path[len(from):])
		if d.IsDir() {
			return c.box.Mkdir(target)
		}
		return c.copyFile(path, target)
	})
	if err != nil {
		return fmt.Errorf("pgcluster: move the write-ahead log: %w", err)
	}
	if err := errors.Join(os.RemoveAll(from), os.Symlink(dir, from)); err != nil {
		return fmt.Errorf("pgcluster: move the write-ahead log: %w", err)
	}
	return c.box.Own(from)
}
