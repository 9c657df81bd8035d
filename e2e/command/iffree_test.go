//go:build unix

package command_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestIfFreeRunsTheCommandOnExactlyOneHost(t *testing.T) {
	t.Parallel()
	const hosts = 6 // processes that start at the same time
	var all []*running
	for i := range hosts {
		driver := []string{"pgx", "pq"}[i%2]
		// A command that goes on until its standard input is closed.
		all = append(all, held(t, quick(name(t), "--driver", driver, "--candidate", fmt.Sprint("host-", i), "--if-free",
			"--if-free-exit-code", "9", "--", "sh", "-c", "echo ran; cat >/dev/null; exit 4")...))
	}
	ran := 0
	for _, r := range all {
		select {
		case line, open := <-r.lines:
			if open && line == "ran" {
				ran++
				continue
			}
			r.ends(t, 9)
		case <-time.After(patience):
			t.Fatalf("neither ran nor left\n%s", r.errs)
		}
	}
	if ran != 1 {
		t.Errorf("%d ran, want 1", ran)
	}
	for _, r := range all {
		r.hangUp()
		if code := r.code(t); code != 4 && code != 9 {
			t.Errorf("exit code %d", code)
		}
	}
}

// held starts the program with a standard input that stays open until hangUp.
func held(t *testing.T, args ...string) *running {
	t.Helper()
	cmd := exec.Command(built(t), args...)
	cmd.Env = append(cmd.Environ(), at(shared.Get(t).DSN())...)
	stdin, err := cmd.StdinPipe()
	check(t, err)
	r := launchCommand(t, cmd)
	r.hangUp = func() { _ = stdin.Close() }
	return r
}

func TestIfFreeLeavesWhileAnotherLeads(t *testing.T) {
	t.Parallel()
	release := occupy(t, shared.Get(t).DSN(), name(t))
	for _, tt := range []struct {
		flags string
		code  int
	}{
		{"--if-free", exit.OK},
		{"--if-free --if-free-exit-code 75", 75},
		{"--if-free --wait 100ms", exit.OK},
		{"--if-free --wait 100ms --if-free-exit-code 11 --standby wait", 11},
	} {
		args := append(quick(name(t), strings.Fields(tt.flags)...), "--", "echo", "ran")
		r := invoke(t, at(shared.Get(t).DSN()), args...)
		r.want(t, tt.code, "another candidate leads")
		if strings.Contains(r.out, "ran") {
			t.Errorf("%s: it ran", tt.flags)
		}
	}
	waiting := run(t, name(t), "--if-free", "--wait", patience.String(), "--", "echo", "ran")
	waiting.logs(t, "leader changed")
	release()
	waiting.says(t, "ran")
	waiting.ends(t, exit.OK)
}

func TestTheEndOfTheWaitDoesNotEndTheCommand(t *testing.T) {
	t.Parallel()
	r := held(t, quick(name(t), "--if-free", "--wait", "300ms", "--if-free-exit-code", "9", "--", "sh", "-c", "echo ran; cat; exit 6")...)
	r.says(t, "ran")
	timer := time.NewTimer(400 * time.Millisecond) // longer than --wait: nothing may happen meanwhile
	defer timer.Stop()
	select {
	case <-r.exited:
		t.Errorf("it ended\n%s", r.errs)
	case <-timer.C:
	}
	r.hangUp()
	r.ends(t, 6)
}

func TestHoldKeepsTheLockAfterAQuickCommand(t *testing.T) {
	t.Parallel()
	r := run(t, name(t), "--log-level", "debug", "--if-free", "--hold", patience.String(), "--", "true")
	r.logs(t, "keeping the lock")
	invoke(t, at(shared.Get(t).DSN()), quick(name(t), "--if-free", "--if-free-exit-code", "9", "--", "true")...).want(t, 9)
	r.signal(t, 15)
	r.ends(t, exit.OK) // the command had done well
	failing := run(t, name(t), "--hold", patience.String(), "--", "false")
	failing.ends(t, 1) // at once: another host may succeed
}
