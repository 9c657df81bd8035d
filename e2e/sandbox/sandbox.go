//go:build unix

// Package sandbox runs programs in a temporary directory. It ends the programs and removes the directory even
// if this process is killed.
//
// Each sandbox has a reaper: a small shell script (reaper.sh) in a separate session. Its standard input is a
// pipe that only this process holds. The pipe closes when [Sandbox.Destroy] closes it, and also when this
// process ends in any way: return, panic, Ctrl-C, kill -9. Then the reaper ends the processes listed in run/,
// and on Linux every process that works in a directory below, and removes the directory. Destroy uses the same
// path, so every test exercises the clean-up after a crash.
//
// Each program runs in a separate session: a Ctrl-C in the terminal reaches the Go process only. If this
// process runs as root, programs run as the user postgres or nobody, since PostgreSQL and pgbouncer refuse to
// run as root.
package sandbox

import (
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

//go:embed reaper.sh
var reaperScript string

// reapTimeout bounds how long Destroy waits for the reaper. The reaper gives servers 8 seconds
// and then repeats the removal for 5, both somewhat longer on a busy machine.
const reapTimeout = 30 * time.Second

// Sandbox is a directory, the processes that run for it, and the reaper that removes both.
type Sandbox struct {
	dir   string
	owner *owner // who owns the directory and runs the processes

	reaper  *exec.Cmd
	leash   io.Closer // the reaper acts when this closes, also when this process dies
	waiters sync.WaitGroup
	destroy func() error // once
}

// New creates a sandbox. The caller must call Destroy.
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
	// Start the reaper first, so that the directory never exists without one.
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

// Destroy ends the processes, in whatever state they are, and removes the directory. Later
// calls return the result of the first.
func (s *Sandbox) Destroy() error { return s.destroy() }

// Dir returns the directory.
func (s *Sandbox) Dir() string { return s.dir }

// ReaperPID returns the process id of the reaper.
func (s *Sandbox) ReaperPID() int { return s.reaper.Process.Pid }

// Own gives a file, or a link, to the user that runs the processes.
func (s *Sandbox) Own(path string) error { return s.owner.chown(path) }

// reap triggers the reaper and returns when the processes and the directory are gone.
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

// Mkdir makes a directory that only the owner can access.
func (s *Sandbox) Mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return s.owner.chown(dir)
}

// WriteFile writes a file that only the owner can access.
func (s *Sandbox) WriteFile(path, content string) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return s.owner.chown(path)
}

// owner is the user that runs the servers and owns their files. A nil owner is the current
// user.
type owner struct {
	uid, gid uint32
}

// processOwner returns nil for an ordinary user. For root, as which PostgreSQL and pgbouncer
// refuse to run, it returns an unprivileged user.
func processOwner() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("sandbox: user %s: %w", name, err)
		}
		return &owner{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("sandbox: PostgreSQL refuses to run as root, and there is no user postgres or nobody " +
		"to run it as; run as an ordinary user, or create the user postgres")
}

func (o *owner) chown(path string) error {
	if o == nil {
		return nil
	}
	if err := os.Lchown(path, int(o.uid), int(o.gid)); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
}

// canEnter returns an error if the owner is another user and may not be able to enter dir.
func (o *owner) canEnter(dir string) error {
	if o == nil {
		return nil
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf("sandbox: servers started by root run as user id %d, which cannot enter %s; "+
				"set TMPDIR to a directory that every user can enter, such as /tmp", o.uid, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (o *owner) credential() *syscall.Credential {
	if o == nil {
		return nil
	}
	return &syscall.Credential{Uid: o.uid, Gid: o.gid}
}

// Loopback is the only address that programs of a sandbox use.
const Loopback = "127.0.0.1"

// PortAttempts is how many ports a start tries: another process can take a port between
// FreePort and its use.
const PortAttempts = 5

// FreePort returns a port that is free at the time of the call. It is below those from which
// the kernel takes one for each outgoing connection (on Linux from 32768): such a connection
// could take the port of a server that is restarted.
func FreePort() (port int, err error) {
	const first, last = 12000, 32000
	for range 100 {
		port = first + mathrand.IntN(last-first)
		var l net.Listener
		if l, err = net.Listen("tcp4", net.JoinHostPort(Loopback, strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("sandbox: look for a free port: %w", err)
}
