//go:build unix

package must

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// Root returns a directory to use as TMPDIR. Servers, which may run as another user, can enter it.
func Root(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	Check(t, os.Chmod(filepath.Dir(dir), 0o755))
	Check(t, os.Chmod(dir, 0o755))
	return dir
}

// Spawn starts the test binary again, in a new process group, and returns when it has said that it is
// ready.
func Spawn(t testing.TB, env ...string) *exec.Cmd {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), env...)
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := child.StdoutPipe()
	Check(t, err)
	Check(t, child.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the child said %q, error %v", line, err)
	}
	return child
}

// Leftovers returns what sandbox.Leftovers does.
func Leftovers(t testing.TB, dir string) []string {
	t.Helper()
	left, err := sandbox.Leftovers(dir)
	Check(t, err)
	return left
}

// Vanish waits until a reaper, which runs in the background, has left nothing of a directory's processes
// and files.
func Vanish(t testing.TB, dir string) {
	t.Helper()
	for deadline := time.Now().Add(40 * time.Second); len(Leftovers(t, dir)) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %q", Leftovers(t, dir))
		}
	}
}
