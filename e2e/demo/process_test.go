//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// show is a running demo with its own directory for temporary files.
type show struct {
	cmd   *exec.Cmd
	home  string // holds the program and the temporary files
	lines *bufio.Scanner
	said  strings.Builder
	err   bytes.Buffer
}

func start(t *testing.T, args ...string) *show {
	t.Helper()
	program := build(t)
	s := &show{home: filepath.Dir(program)}
	tmp := filepath.Join(s.home, "tmp")
	// The server may run as another user.
	for dir := s.home; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			break // another user's
		}
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command(program, append([]string{"--plain"}, args...)...)
	s.cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	s.cmd.Stderr = &s.err
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() }) // does nothing to one that has ended
	s.lines = bufio.NewScanner(out)
	return s
}

// until reads lines up to one that contains text; with "" it reads to the end.
func (s *show) until(t *testing.T, text string) {
	t.Helper()
	for s.lines.Scan() {
		s.said.WriteString(s.lines.Text() + "\n")
		if text != "" && strings.Contains(s.lines.Text(), text) {
			return
		}
	}
	if text != "" {
		t.Fatalf("never printed %q, but\n%s%s", text, &s.said, &s.err)
	}
}

// leavesNothing waits: after a kill the reaper and the guard run in the background.
func (s *show) leavesNothing(t *testing.T, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		left := leftovers(t, s.home)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %q", left)
		}
	}
}

// leftovers returns the temporary files, and the processes whose arguments contain home.
func leftovers(t *testing.T, home string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(home, "tmp", "*"))
	if err != nil {
		t.Fatal(err)
	}
	tables, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range tables {
		if args, _ := os.ReadFile(file); bytes.Contains(args, []byte(home)) {
			left = append(left, string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
		}
	}
	if len(tables) > 0 {
		return left
	}
	table, err := exec.Command("ps", "-A", "-o", "args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, home) {
			left = append(left, line)
		}
	}
	return left
}

func TestTheDemoSucceedsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.until(t, "")
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, &s.said, &s.err)
	}
	s.leavesNothing(t, 0)

	said := s.said.String()
	if strings.Contains(said, "\x1b") {
		t.Error("plain lines hold escape sequences")
	}
	if !strings.Contains(said, "lease 3s, heartbeat 200ms, retry 300ms") {
		t.Error("the settings are not shown")
	}
	for i, title := range []string{"first election", "clean resignation", "planned hand-over", "kill -9 of the leader",
		"frozen leader", "terminated backend", "database restart", "a write that came too late"} {
		if scene := fmt.Sprintf("Scene %d: %s", i+1, title); !strings.Contains(said, scene) {
			t.Errorf("no %q", scene)
		}
		row := regexp.MustCompile(fmt.Sprintf(`│ %d %s.*│ [–A-D] +│ [A-D] +│ \d+ +│ \d+\.\d\d s +│`, i+1, title))
		if !row.MatchString(said) {
			t.Errorf("the table has no row for %q", title)
		}
	}
	if !strings.Contains(said, "after SIGCONT, says false") {
		t.Error("the thawed leader's answer is not shown")
	}
	for _, late := range []string{"unfenced   went through", "Term.InTx  was refused", "token      was refused"} {
		if !strings.Contains(said, late) {
			t.Errorf("no late write that says %q", late)
		}
	}
	if got := strings.Count(said, "  ok    "); got != 7 || strings.Contains(said, "FAIL") {
		t.Errorf("%d proofs hold, want 7", got)
	}
	if t.Failed() {
		t.Log(said)
	}
}

func TestAnInterruptedDemoLeavesNothing(t *testing.T) {
	for _, test := range []struct{ name, when string }{
		{"at the start", "demo: "},
		{"between processes", "Candidate A"},
		{"in the middle", "Scene 3"},
		{"while a leader is frozen", "by SIGSTOP"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.until(t, test.when)
			if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			s.until(t, "")
			_ = s.cmd.Wait()
			if code := s.cmd.ProcessState.ExitCode(); code != 130 {
				t.Errorf("exit code %d, want 130\n%s%s", code, &s.said, &s.err)
			}
			s.leavesNothing(t, 0)
		})
	}
}

func TestAKilledDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.until(t, "by SIGSTOP")
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	s.leavesNothing(t, 20*time.Second)
}

func TestAnInvalidLeaseIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, "--lease", "10ms")
	s.until(t, "")
	if err := s.cmd.Wait(); err == nil || !strings.Contains(s.err.String(), "WithLease(10ms)") {
		t.Errorf("error %v, said %q", err, &s.err)
	}
	s.leavesNothing(t, 0)
}

// build links the program into a temporary directory, so that leftovers finds its
// processes by that directory. The program is compiled once. (A copy could fail to run: a
// process forked meanwhile may still have it open for writing.)
func build(t *testing.T) (program string) {
	t.Helper()
	compiled, err := compile()
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(t.TempDir(), "demo")
	if err := os.Link(compiled, program); err != nil {
		t.Fatal(err)
	}
	return program
}

// TestMain removes what was compiled.
var compile = sync.OnceValues(func() (program string, err error) {
	if compiledIn, err = os.MkdirTemp("", "demo-"); err != nil {
		return "", err
	}
	program = filepath.Join(compiledIn, "demo")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return program, nil
})

var compiledIn string
