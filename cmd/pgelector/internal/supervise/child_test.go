//go:build unix

package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const asGuard = "guard" // the argument that makes the test's program the guard

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asGuard {
		Guard(os.Args[2:])
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/pgelector/pgelector/cmd/pgelector/internal/supervise.NewReaper.func1"))
}

// onlyReaper returns the only one of this program: two would reap each other's children.
var onlyReaper = sync.OnceValues(NewReaper)

const patience = 30 * time.Second

// The host may freeze while the guard starts, and thaw when another leads.
func TestACommandWhoseTermIsOverIsNotStarted(t *testing.T) {
	reaper, err := onlyReaper()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ran")
	child, err := reaper.Start(Options{
		Guard:    []string{os.Args[0], asGuard, "sh", "-c", `trap '' TERM; echo >"$0"`, file},
		Env:      os.Environ(),
		Grace:    2 * time.Second,
		Drain:    patience,
		Deadline: time.Now().Add(-time.Millisecond),
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-child.Gone():
	case <-time.After(patience):
		t.Fatal("the guard does not end")
	}
	if _, err := os.Stat(file); child.PID() != 0 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command ran as process %d, and its file: %v", child.PID(), err)
	}
	<-child.guard
	if r := child.Result(); !r.Stopped || r.GuardLost || r.StartError == "" {
		t.Errorf("got %+v, want one that was stopped before it started", r)
	}
}
