//go:build unix

package sandbox

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

// reapTimeout bounds how long Destroy waits for the reaper, which gives servers 8 seconds and then
// repeats the removal for 5, both somewhat longer on a busy machine.
const reapTimeout = 30 * time.Second

// Sandbox is a directory, the processes that run for it, and the reaper that removes both.
type Sandbox struct {
	dir   string
	owner *owner // who owns the directory and runs the processes

	reaper  *exec.Cmd
	leash   io.Closer // the reaper acts when this closes, also by our death
	waiters sync.WaitGroup
	destroy func() error // once
}

// New creates the directory of a sandbox. The caller must call Destroy.
func New() (*Sandbox, error) {
	owner, err := processOwner()
	if err != nil {
		return nil, err
	}
	tmp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	if err := owner.canEnter(tmp); err != nil {
		return nil, err
	}
	s := &Sandbox{dir: filepath.Join(tmp, "pgelector-"+rand.Text()), owner: owner}
	// The reaper first: a directory never exists without one, not even for a moment.
	if err := s.startReaper(); err != nil {
		return nil, err
	}
	s.destroy = sync.OnceValue(s.reap)
	for _, dir := range []string{s.dir, s.Path("run")} {
		if err := s.Mkdir(dir); err != nil {
			return nil, errors.Join(err, s.destroy())
		}
	}
	return s, nil
}

func (s *Sandbox) startReaper() error {
	s.reaper = exec.Command("/bin/sh", "-c", reaperScript, "sh", s.dir)
	s.reaper.Dir = "/"
	s.reaper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	leash, err := s.reaper.StdinPipe()
	if err != nil {
		return fmt.Errorf("sandbox: pipe to the reaper: %w", err)
	}
	s.leash = leash
	if err := s.reaper.Start(); err != nil {
		return fmt.Errorf("sandbox: start the reaper (it needs /bin/sh): %w", err)
	}
	return nil
}

// Destroy ends the processes, whatever state they are in, and removes the directory. Calls after the first
// do nothing and return what the first did.
func (s *Sandbox) Destroy() error { return s.destroy() }

// Dir returns the directory.
func (s *Sandbox) Dir() string { return s.dir }

// ReaperPID returns the process id of the reaper.
func (s *Sandbox) ReaperPID() int { return s.reaper.Process.Pid }

// Own gives a file, or a link, to whom the processes run as.
func (s *Sandbox) Own(path string) error { return s.owner.chown(path) }

// reap lets the reaper act and returns when the processes and the directory are gone.
func (s *Sandbox) reap() error {
	s.leash.Close()
	timer := time.AfterFunc(reapTimeout, func() { s.reaper.Process.Kill() })
	defer timer.Stop()
	err := s.reaper.Wait()
	if _, statErr := os.Lstat(s.dir); statErr == nil {
		return fmt.Errorf("sandbox: %s could not be removed (%v); end what still runs there and remove it", s.dir, err)
	}
	s.waiters.Wait()
	return nil
}

// Path returns a path below the directory.
func (s *Sandbox) Path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// Mkdir makes a directory that belongs to the owner alone.
func (s *Sandbox) Mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return s.owner.chown(dir)
}

// WriteFile makes a file that belongs to the owner alone.
func (s *Sandbox) WriteFile(path, content string) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return s.owner.chown(path)
}
