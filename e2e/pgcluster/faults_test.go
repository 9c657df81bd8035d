//go:build unix

package pgcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/must"
)

func TestKilledServerRecoversOnResume(t *testing.T) {
	c := own(t)
	check(t, c.Exec(t.Context(), "CREATE TABLE kept ()"))
	conn := connect(t, c.DSN())
	check(t, c.Kill())
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("the session survived")
	}
	if err := c.Kill(); err == nil {
		t.Error("a second Kill does not say that the server is down")
	}
	check(t, c.Resume(t.Context()))
	check(t, c.Exec(t.Context(), "TABLE kept"))
	log, err := c.ServerLog()
	check(t, err)
	if !strings.Contains(log, "was not properly shut down") {
		t.Error("the server did not go through crash recovery")
	}
}

func TestFrozenServerStopsAtOnce(t *testing.T) {
	c := own(t)
	connect(t, c.DSN())
	check(t, c.Freeze())
	began := time.Now()
	check(t, c.Stop())
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("Stop took %v", took)
	}
}

func TestKillBackendRefusesOtherProcesses(t *testing.T) {
	if err := shared.Get(t).KillBackend(os.Getpid()); err == nil {
		t.Error("no error")
	}
}

// The tests in this file run the test binary again, as a child process that starts a cluster and then ends in
// a way that skips a deferred Stop.

const scenarioVariable = "PGCLUSTER_TEST_SCENARIO"

// actScenario runs in the child. It prints "ready" when there is something to leave behind.
func actScenario(scenario string) {
	exit := func(err error) {
		if err != nil {
			fmt.Println("child:", err)
			os.Exit(3)
		}
	}
	ctx := context.Background()
	if scenario == "starting" {
		fmt.Println("ready")
	}
	c, err := Start(ctx)
	exit(err)
	_, err = c.AddStandby(ctx)
	exit(err)
	if _, err := findBouncer(); err == nil {
		_, err = c.Bouncer(ctx, Session)
		exit(err)
	}
	conn, err := c.Conn(ctx) // so that there is a backend too
	exit(err)
	switch scenario {
	case "frozen":
		exit(c.Freeze())
	case "crashed":
		exit(c.Kill())
	}
	fmt.Println("ready")
	switch scenario {
	case "panics":
		panic("as the test wants it")
	case "exits":
		os.Exit(0)
	}
	time.Sleep(time.Minute)
	conn.Close(ctx)
}

func TestNothingIsLeftWhenTheProcess(t *testing.T) {
	t.Parallel()
	interrupt := func(t *testing.T, child *exec.Cmd) { check(t, syscall.Kill(-child.Process.Pid, syscall.SIGINT)) }
	kill := func(t *testing.T, child *exec.Cmd) { check(t, child.Process.Kill()) }
	ends := func(*testing.T, *exec.Cmd) {}
	tests := []struct {
		name, scenario string
		end            func(*testing.T, *exec.Cmd)
	}{
		{"panics", "panics", ends},
		{"exits", "exits", ends},
		{"gets Ctrl-C", "waits", interrupt},
		{"is killed", "waits", kill},
		{"is killed while the server is frozen", "frozen", kill},
		{"is killed after the server crashed", "crashed", kill},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tmp := must.Root(t)
			child := must.Spawn(t, scenarioVariable+"="+test.scenario, "TMPDIR="+tmp)
			segments := sharedMemory(t, tmp)
			test.end(t, child)
			child.Wait()
			must.Vanish(t, tmp)
			for _, segment := range segments {
				if sharedMemoryExists(segment) {
					t.Errorf("shared memory segment %s is left", segment)
				}
			}
		})
	}
}

func TestNothingIsLeftWhenTheProcessIsKilledWhileItStarts(t *testing.T) {
	t.Parallel()
	for _, ms := range []time.Duration{0, 20, 100, 400, 900} {
		after := ms * time.Millisecond
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			tmp := must.Root(t)
			child := must.Spawn(t, scenarioVariable+"=starting", "TMPDIR="+tmp, "XDG_CACHE_HOME="+t.TempDir())
			time.Sleep(after)
			check(t, child.Process.Kill())
			child.Wait()
			must.Vanish(t, tmp)
		})
	}
}

func TestCtrlCDoesNotReachTheServer(t *testing.T) {
	c := shared.Get(t)
	for what, pid := range map[string]int{"server": c.PID(), "reaper": c.box.ReaperPID()} {
		group, err := syscall.Getpgid(pid)
		check(t, err)
		if group == syscall.Getpgrp() {
			t.Errorf("the %s is in our process group", what)
		}
	}
}

// sharedMemory returns the System V segments of the servers below a directory.
func sharedMemory(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(dir + "/*/data/postmaster.pid")
	check(t, err)
	var ids []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		check(t, err)
		lines := strings.Split(string(content), "\n")
		ids = append(ids, strings.Fields(lines[6])[1])
	}
	if len(ids) != 2 {
		t.Errorf("%d servers run, want 2: %q", len(ids), must.Leftovers(t, dir))
	}
	return ids
}

func sharedMemoryExists(id string) bool {
	content, _ := os.ReadFile("/proc/sysvipc/shm") // elsewhere than on Linux this sees nothing
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == id {
			return true
		}
	}
	return false
}
