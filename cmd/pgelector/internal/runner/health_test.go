//go:build unix

package runner

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/supervise"
)

func TestAHealthCommandDecidesByItsExitCodeAndSaysWhy(t *testing.T) {
	reaper, err := supervise.NewReaper()
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]struct {
		score float64
		why   string
	}{
		"true":                           {1, ""},
		"echo first; echo 'load is 2'":   {1, "load is 2"},
		"echo disk full >&2; exit 3":     {0, "disk full"},
		"exit 1":                         {0, "the health command ended with 1"},
		"yes | head -c 100000; echo end": {1, "end"},
	} {
		if got := checkBy(t.Context(), reaper, command); got.Score != want.score || got.Why != want.why {
			t.Errorf("%s: got %+v", command, got)
		}
	}
}

func TestAHealthCommandThatHangsIsKilledWithWhatItStarted(t *testing.T) {
	reaper, err := supervise.NewReaper()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	began := time.Now()
	if got := checkBy(ctx, reaper, "sleep 1000 & sleep 1000"); got.Score != 0 || !strings.Contains(got.Why, "did not end") || time.Since(began) > 30*time.Second {
		t.Errorf("got %+v after %v", got, time.Since(began))
	}
}

// What a check leaves behind would run beside the next one, and after the process has ended.
func TestWhatAHealthCommandLeavesBehindEndsWithTheCheck(t *testing.T) {
	reaper, err := supervise.NewReaper()
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string]string{
		"its output elsewhere": "sleep 1000 >/dev/null 2>&1 & echo $!",
		"its output kept":      "sleep 1000 & echo $!",
		"ignores signals":      "trap '' HUP INT TERM; sleep 1000 >/dev/null 2>&1 & echo $!",
		"the check fails":      "sleep 1000 & echo $!; exit 1",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
			defer stop()
			got := checkBy(ctx, reaper, command)
			pid, err := strconv.Atoi(got.Why)
			if err != nil || (got.Score == 1) != (name != "the check fails") || ctx.Err() != nil {
				t.Fatalf("got %+v, %v", got, ctx.Err())
			}
			for !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) { // until it is reaped
				if ctx.Err() != nil {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					t.Fatalf("process %d has outlived the check", pid)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}
