//go:build unix

package pgcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

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
