package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// When a guard is killed, the command ends while the supervisor looks for what the command has
// started. What is handed to the supervisor meanwhile must not be missed.
func TestNoProcessIsLeftOfACommandWhoseGuardWasKilledBesideAnother(t *testing.T) {
	reaper, err := onlyReaper()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	start := func(name string) (c *Child, process int) {
		t.Helper()
		file := filepath.Join(dir, name)
		c, err := reaper.Start(Options{
			Guard:    []string{os.Args[0], asGuard},
			Command:  []string{"sh", "-c", `sleep 1000 & echo $! >"$0.new" && mv "$0.new" "$0"; wait`, file},
			Env:      os.Environ(),
			Grace:    time.Second,
			Drain:    patience,
			Deadline: time.Now().Add(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			text, _ := os.ReadFile(file)
			if process, err = strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				return c, process
			}
			if time.Now().After(end) {
				t.Fatal("the command does not start")
			}
		}
	}
	other, lives := start("other")
	for round := range 80 { // one at a time: the search of another may find what one has missed
		c, process := start(fmt.Sprint(round))
		_ = syscall.Kill(c.guardPID, syscall.SIGKILL)
		awaitGone(t, c)
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
		if p, ok := parseStat(stat); err == nil && ok && !p.zombie {
			t.Errorf("round %d: process %d lives", round, process)
		}
	}
	if syscall.Kill(lives, 0) != nil {
		t.Error("the other command has ended")
	}
	other.Stop()
	awaitGone(t, other)
}

// A script that starts something in the background, and then execs pgelector, leaves it a child that
// belongs to no command.
func TestAChildFromBeforeOutlivesACommandWhoseGuardWasKilled(t *testing.T) {
	reaper, err := onlyReaper()
	if err != nil {
		t.Fatal(err)
	}
	if before == 0 {
		t.Skip("there is no /bin/sleep")
	}
	c, err := reaper.Start(Options{
		Guard:    []string{os.Args[0], asGuard},
		Command:  []string{"sleep", "1000"},
		Env:      os.Environ(),
		Drain:    patience,
		Deadline: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	<-c.Started()
	_ = syscall.Kill(c.guardPID, syscall.SIGKILL)
	awaitGone(t, c)
	if err := syscall.Kill(before, 0); err != nil {
		t.Errorf("the child from before: %v", err)
	}
}
