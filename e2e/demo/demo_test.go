//go:build unix

package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/sandbox"
)

var check = must.Check

// The test binary is the demo, too, and its candidates.
const asDemo = "PGELECTOR_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(asDemo) != "" {
		main()
		os.Exit(0)
	}
	// A demo needs little processor time.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestALongLineOfTheLiveViewIsBrokenBetweenWords(t *testing.T) {
	m := picture()
	said := "A learned after 3.2 ms that its session was gone (it sends a heartbeat every 200ms), and this sentence goes on to the second line"
	next, _ := m.Update(saysMsg(said))
	m = next.(model)
	if view := strings.Join(strings.Fields(m.picture()), " "); !strings.Contains(view, said) {
		t.Errorf("it cuts the line:\n%s", m.picture())
	}
	if w, h := lipgloss.Width(m.picture()), lipgloss.Height(m.picture()); w > columns || h > 24 {
		t.Errorf("it is %d×%d:\n%s", w, h, m.picture())
	}
}

func TestSettledWaitsUntilAllCandidatesFollow(t *testing.T) {
	var b board
	steps := []struct {
		event   history.Event
		settled string
	}{
		{history.Event{Process: "A", At: 1, Kind: history.Hello}, ""},
		{history.Event{Process: "B", At: 1, Kind: history.Hello}, ""},
		{history.Event{Process: "A", At: 2, Kind: history.Began, Token: 7}, ""},
		{history.Event{Process: "B", At: 3, Kind: history.Attempt, Text: "busy"}, ""},
		{history.Event{Process: "A", At: 4, Kind: history.Sample, Leading: true, Token: 7, Deadline: 100}, "A"},
		{history.Event{Process: "A", At: 5, Kind: history.Frozen}, ""},
		{history.Event{Process: "B", At: 6, Kind: history.Began, Token: 8}, ""},
		{history.Event{Process: "B", At: 7, Kind: history.Sample, Leading: true, Token: 8, Deadline: 200}, ""},
		{history.Event{Process: "A", At: 150, Kind: history.Thawed}, ""},
		{history.Event{Process: "A", At: 151, Kind: history.Sample}, ""},
		{history.Event{Process: "A", At: 152, Kind: history.Ended, Token: 7}, ""},
		{history.Event{Process: "A", At: 153, Kind: history.Attempt, Text: "busy"}, "B"},
		{history.Event{Process: "B", At: 154, Kind: history.Killed}, ""},
		{history.Event{Process: "C", At: 155, Kind: history.Hello}, ""},
	}
	for i, step := range steps {
		b.update([]history.Event{step.event})
		settled := ""
		if r := b.settled(); r != nil {
			settled = r.process
		}
		if settled != step.settled {
			t.Errorf("after event %d (%s of %s) %q leads, want %q", i, step.event.Kind, step.event.Process, settled, step.settled)
		}
	}
	if woke := b.of("A").woke; woke == nil || woke.At != 151 {
		t.Errorf("the first answer after the thaw is %+v", woke)
	}
	if r := b.reign[0]; r.ended != 100 {
		t.Errorf("the frozen reign ended at %d, want with its lease at 100", r.ended)
	}
	if len(b.seats) != 2 || b.seats[1].name != "C" {
		t.Errorf("C did not take the seat of B: %+v", b.seats)
	}
}

// picture returns a live view in the middle of the scene of the frozen leader.
func picture() model {
	now := history.Now()
	began := now.Add(-8 * time.Second)
	log := new(history.Log)
	for _, e := range []history.Event{
		{Process: "A", Kind: history.Hello, PID: 4194303, Text: "pgx"},
		{Process: "B", Kind: history.Hello, PID: 4194304, Text: "lib/pq"},
		{Process: "C", Kind: history.Hello, PID: 4194305, Text: "pgx"},
		{Process: "A", Kind: history.Began, At: began, Token: 281474976711380},
		{Process: "A", Kind: history.Sample, Leading: true, Token: 281474976711380, Deadline: now.Add(30 * time.Second)},
		{Process: "A", Kind: history.Frozen, At: now.Add(-time.Second)},
		{Process: "B", Kind: history.Killed, At: now.Add(-time.Second)},
	} {
		log.Add(e)
	}
	m := model{log: log, board: new(board), began: began, width: 80}
	for _, msg := range []tea.Msg{beginsMsg(1), endsMsg(outcome{number: 1, new: "A", token: 281474976711380, vacant: time.Second}),
		beginsMsg(2), saysMsg("one"), saysMsg("two"), saysMsg("three"), saysMsg("four"), saysMsg("five"), saysMsg("six")} {
		next, _ := m.Update(msg)
		m = next.(model)
	}
	return m
}

func TestTheLiveViewFitsASmallTerminal(t *testing.T) {
	view := picture().picture()
	if w, h := lipgloss.Width(view), lipgloss.Height(view); w > 80 || h > 24 {
		t.Errorf("it is %d×%d, want at most 80×24:\n%s", w, h, view)
	}
	if h := lipgloss.Height(picture().panels(history.Now())); h != 6 {
		t.Errorf("a panel is %d lines high, want 6: a line was broken\n%s", h, view)
	}
}

func TestTheLiveViewShowsEachCandidateAndScene(t *testing.T) {
	view := picture().picture()
	for _, want := range []string{"■ frozen", "✗ killed", "· starts", "pid 4194304", "281474976711380", "30.0 s", "░",
		"✓", "1 first election", "1.00 s without a leader", "▸ 2 clean resignation", "8 a write that came too late", "six"} {
		if !strings.Contains(view, want) {
			t.Errorf("it does not show %q:\n%s", want, view)
		}
	}
	if strings.Contains(view, "  one") {
		t.Error("it shows more lines of a scene than fit")
	}
}

func TestCtrlCInTheLiveViewInterrupts(t *testing.T) {
	m := picture()
	var got error
	m.stop = func(err error) { got = err }
	m.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
	if got != errInterrupted {
		t.Errorf("stopped by %v, want errInterrupted", got)
	}
}

func TestTheReportShowsAFailedProof(t *testing.T) {
	var out strings.Builder
	report{out: &out}.print(
		[]outcome{{number: 1, title: "first election", new: "A", token: 7, vacant: 1234 * time.Millisecond}},
		[]history.Proof{
			{Claim: "all is well", Checked: "one thing; another"},
			{Claim: "no two led at once", Checked: "2 terms", Violations: []string{"A and B both led"}},
		})
	want := `
What happened:
┌──────────────────┬─────┬─────┬───────┬───────────┐
│ scene            │ old │ new │ token │ no leader │
├──────────────────┼─────┼─────┼───────┼───────────┤
│ 1 first election │ –   │ A   │ 7     │ 1.23 s    │
└──────────────────┴─────┴─────┴───────┴───────────┘

Proof, from what the processes recorded:
  ok    all is well
        one thing
        another
  FAIL  no two led at once
        2 terms
        A and B both led
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// show is a running demo with its own directory for temporary files.
type show struct {
	cmd   *exec.Cmd
	home  string // its working directory, and its candidates'
	lines *bufio.Scanner
	said  strings.Builder
	err   bytes.Buffer
}

func start(t *testing.T) *show {
	t.Helper()
	program, err := os.Executable()
	check(t, err)
	s := &show{home: t.TempDir(), cmd: exec.Command(program, "--plain")}
	// The server may run as another user.
	for dir := s.home; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			break // another user's
		}
	}
	s.cmd.Dir = s.home
	s.cmd.Env = append(os.Environ(), asDemo+"=1", "TMPDIR="+s.home, "GORACE=atexit_sleep_ms=0")
	s.cmd.Stderr = &s.err
	out, err := s.cmd.StdoutPipe()
	check(t, err)
	check(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill() }) // does nothing to one that has ended
	s.lines = bufio.NewScanner(out)
	return s
}

// until reads lines up to one that contains text, which it returns; with "" it reads to the end.
func (s *show) until(t *testing.T, text string) (line string) {
	t.Helper()
	for s.lines.Scan() {
		s.said.WriteString(s.lines.Text() + "\n")
		if text != "" && strings.Contains(s.lines.Text(), text) {
			return s.lines.Text()
		}
	}
	if text != "" {
		t.Fatalf("never printed %q, but\n%s%s", text, &s.said, &s.err)
	}
	return ""
}

// leavesNothing waits: after a kill the reapers run in the background.
func (s *show) leavesNothing(t *testing.T, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		left, err := sandbox.Leftovers(s.home)
		check(t, err)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %q", left)
		}
	}
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
	for line := range strings.Lines(said) {
		if w := lipgloss.Width(line); w > columns {
			t.Errorf("a line has %d columns, so that a terminal of %d cuts a word: %s", w, columns, line)
		}
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
			check(t, s.cmd.Process.Signal(os.Interrupt))
			s.until(t, "")
			_ = s.cmd.Wait()
			if code := s.cmd.ProcessState.ExitCode(); code != 130 || s.err.String() != "demo: "+errInterrupted.Error()+"\n" {
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
	check(t, s.cmd.Process.Signal(syscall.SIGKILL))
	_ = s.cmd.Wait()
	s.leavesNothing(t, 20*time.Second)
}

func TestACandidateThatEndsUnexpectedlyFailsTheDemo(t *testing.T) {
	t.Parallel()
	s := start(t)
	var pid int
	_, err := fmt.Sscanf(s.until(t, "Candidate A"), "Candidate A: process %d", &pid)
	check(t, err)
	check(t, syscall.Kill(pid, syscall.SIGQUIT))
	s.until(t, "")
	if err := s.cmd.Wait(); err == nil || !strings.Contains(s.err.String(), "candidate A ended unexpectedly (exit status 2): SIGQUIT") {
		t.Errorf("error %v, said %q", err, &s.err)
	}
	s.leavesNothing(t, 0)
}
