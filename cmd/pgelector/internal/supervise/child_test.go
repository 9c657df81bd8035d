//go:build unix

package supervise

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
)

const asGuard = "guard" // the argument that makes the test's program the guard

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asGuard {
		Guard(os.Args[2:])
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/pgelector/pgelector/cmd/pgelector/internal/supervise.NewReaper.func1"),
		goleak.Cleanup(func(code int) {
			if before != 0 {
				_ = syscall.Kill(before, syscall.SIGKILL)
			}
			os.Exit(code)
		}))
}

// before is the id of a child that this program has when its reaper begins; 0 if there is none.
var before int

// onlyReaper returns the only one of this program: two would reap each other's children.
var onlyReaper = sync.OnceValues(func() (*Reaper, error) {
	if p, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{Files: []*os.File{nil, nil, nil}}); err == nil {
		before = p.Pid
		_ = p.Release()
	}
	return NewReaper()
})

const patience = 90 * time.Second

// awaitGone waits until no process of the child is left, nor its guard.
func awaitGone(t *testing.T, c *Child) {
	t.Helper()
	select {
	case <-c.Gone():
	case <-time.After(patience):
		t.Fatal("the command does not end")
	}
	<-c.guard
}

// The host may freeze while the guard starts, and thaw when another leads.
func TestACommandWhoseTermIsOverIsNotStarted(t *testing.T) {
	reaper, err := onlyReaper()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ran")
	child, err := reaper.Start(Options{
		Guard:    []string{os.Args[0], asGuard},
		Command:  []string{"sh", "-c", `trap '' TERM; echo >"$0"`, file},
		Env:      os.Environ(),
		Grace:    2 * time.Second,
		Drain:    patience,
		Deadline: time.Now().Add(-time.Millisecond),
	})
	if err != nil {
		t.Fatal(err)
	}
	awaitGone(t, child)
	if _, err := os.Stat(file); child.PID() != 0 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command ran as process %d, and its file: %v", child.PID(), err)
	}
	if r := child.Result(); !r.Stopped || r.GuardLost || r.StartError == "" {
		t.Errorf("got %+v, want one that was stopped before it started", r)
	}
}

// A guard that was frozen for a moment must still hear of heartbeats, or it would end the
// command of a term that goes on.
func TestAnOrderThatFoundAFullPipeSilencesNoLaterOne(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	raw, err := write.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	filled, line := 0, []byte(strings.Repeat(" ", 511)+"\n")
	fill := func(fd uintptr) bool { // without a deadline, which may pass before the pipe is full
		for err == nil || errors.Is(err, syscall.EINTR) {
			var n int
			n, err = syscall.Write(int(fd), line)
			filled += max(n, 0)
		}
		return true
	}
	if failed := raw.Write(fill); failed != nil || !errors.Is(err, syscall.EAGAIN) {
		t.Fatal(failed, err)
	}
	child := &Child{control: write}
	child.Extend(time.Now()) // lost
	orders := bufio.NewReader(read)
	if _, err := orders.Discard(filled); err != nil {
		t.Fatal(err)
	}
	for range 10 { // a busy machine may exceed the time limit of one
		child.Extend(time.Now().Add(time.Hour))
	}
	_ = write.Close() // else the wait for orders that were lost would not end
	var got order
	if err := json.NewDecoder(orders).Decode(&got); err != nil {
		t.Fatalf("the orders that followed were lost, too: %v", err)
	}
	if got.Do != doExtend || got.Deadline.left() < time.Minute {
		t.Errorf("got %+v", got)
	}
}

// The wall clock can be set, and the monotonic clock stops while the machine sleeps.
func TestTheInstantOfADeadlineIsTheEarlierByTheTwoClocks(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		deadline time.Time
		over     bool
	}{
		"both are an hour before it":  {now.Add(time.Hour), false},
		"the machine has slept":       {moved(t, now.Add(-time.Minute), time.Hour), true},
		"the wall clock was set back": {moved(t, now.Add(time.Hour), -2*time.Hour), true},
		"it has no monotonic reading": {now.Add(-time.Minute).Round(0), true},
	} {
		if left := instantOf(tt.deadline).left(); left <= 0 != tt.over {
			t.Errorf("%s: %v are left", name, left)
		}
	}
}

// moved returns at with a later monotonic reading. Package time has no function for that.
func moved(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	layout := (*struct {
		wall uint64
		mono int64
	})(unsafe.Pointer(&at))
	layout.mono += int64(d)
	now := time.Now()
	if difference := at.Sub(now) - at.Round(0).Sub(now.Round(0)); difference.Round(time.Minute) != d {
		t.Fatalf("the layout of time.Time has changed: moved by %v, not %v", difference, d)
	}
	return at
}
