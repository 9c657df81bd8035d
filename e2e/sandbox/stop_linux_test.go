package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// busy makes the test's program a process whose threads never wait.
const busy = "PGELECTOR_TEST_BUSY"

func TestMain(m *testing.M) {
	if os.Getenv(busy) == "" {
		os.Exit(m.Run())
	}
	for range 8 {
		go func() {
			for n := 0; ; n++ {
				runtime.KeepAlive(n)
			}
		}()
	}
	fmt.Println("busy")
	time.Sleep(time.Minute)
}

// What must not hear of the next fault must not run when that comes. After SIGSTOP alone most of these
// processes have threads that run.
func TestAProcessThatIsStoppedStandsStill(t *testing.T) {
	for range 20 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), busy+"=1", "GOMAXPROCS=9")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = out.Read(make([]byte, 4))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := sandbox.Stop(cmd.Process.Pid); err != nil {
			t.Error(err)
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", cmd.Process.Pid))
		if err != nil || len(threads) < 2 {
			t.Errorf("%d threads: %v", len(threads), err)
		}
		for _, thread := range threads {
			if stat, err := os.ReadFile(thread); err != nil || !strings.Contains(string(stat), ") T ") {
				t.Errorf("%s: %v", stat, err)
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func TestAProcessThatHasEndedCannotBeStopped(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	for began := time.Now(); sandbox.Stop(cmd.Process.Pid) == nil; _ = sandbox.Signal(cmd.Process, syscall.SIGCONT) {
		if time.Since(began) > time.Minute {
			t.Fatal("a process that has ended is said to be stopped")
		}
	}
}
