//go:build unix

package pgcluster

import (
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

//go:embed reaper.sh
var reaperScript string

// reapTimeout bounds how long destroy waits for the reaper, which gives servers 8 seconds and then
// repeats the removal for 5, both somewhat longer on a busy machine.
const reapTimeout = 30 * time.Second

// sandbox is a directory, the processes that run for it, and the reaper that removes both.
type sandbox struct {
	dir   string
	owner *owner // who owns the directory and runs the processes

	reaper  *exec.Cmd
	leash   io.Closer // the reaper acts when this closes, also by our death
	waiters sync.WaitGroup
	destroy func() error
}

// newSandbox creates the directory of a sandbox. The caller must call destroy.
func newSandbox() (*sandbox, error) {
	owner, err := processOwner()
	if err != nil {
		return nil, err
	}
	tmp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("pgcluster: %w", err)
	}
	if err := owner.canEnter(tmp); err != nil {
		return nil, err
	}
	s := &sandbox{dir: filepath.Join(tmp, "pgelector-"+rand.Text()), owner: owner}
	// The reaper first: a directory never exists without one, not even for a moment.
	if err := s.startReaper(); err != nil {
		return nil, err
	}
	s.destroy = sync.OnceValue(s.reap)
	for _, dir := range []string{s.dir, s.path("run")} {
		if err := s.mkdir(dir); err != nil {
			return nil, errors.Join(err, s.destroy())
		}
	}
	return s, nil
}

func (s *sandbox) startReaper() error {
	s.reaper = exec.Command("/bin/sh", "-c", reaperScript, "sh", s.dir)
	s.reaper.Dir = "/"
	s.reaper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	leash, err := s.reaper.StdinPipe()
	if err != nil {
		return fmt.Errorf("pgcluster: pipe to the reaper: %w", err)
	}
	s.leash = leash
	if err := s.reaper.Start(); err != nil {
		return fmt.Errorf("pgcluster: start the reaper (it needs /bin/sh): %w", err)
	}
	return nil
}

// reap lets the reaper act and returns when the processes and the directory are gone.
func (s *sandbox) reap() error {
	s.leash.Close()
	timer := time.AfterFunc(reapTimeout, func() { s.reaper.Process.Kill() })
	defer timer.Stop()
	err := s.reaper.Wait()
	if _, statErr := os.Lstat(s.dir); statErr == nil {
		return fmt.Errorf("pgcluster: %s could not be removed (%v); end what still runs there and remove it", s.dir, err)
	}
	s.waiters.Wait()
	return nil
}

func (s *sandbox) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// mkdir makes a directory that belongs to the owner alone.
func (s *sandbox) mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	return s.owner.chown(dir)
}

// writeFile makes a file that belongs to the owner alone.
func (s *sandbox) writeFile(path, content string) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("pgcluster: %w", err)
	}
	return s.owner.chown(path)
}
