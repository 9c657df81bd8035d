//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/history"
)

// The test binary also runs as the other processes of a demo.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		part := map[string]func() error{
			candidateCommand: func() error { return runCandidate(os.Args[2], os.Stdin, os.Stdout) },
			guardCommand:     func() error { return runGuard(os.Stdin) },
			"demo-sleeper":   func() error { time.Sleep(time.Minute); return nil },
		}[os.Args[1]]
		if part != nil {
			if err := part(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	// A demo needs little processor time.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if compiledIn != "" {
			_ = os.RemoveAll(compiledIn)
		}
		os.Exit(code)
	}))
}

func again(args ...string) *exec.Cmd { return exec.Command(os.Args[0], args...) }

func TestTheDemoSucceedsAndLeavesNoGoroutine(t *testing.T) {
	t.Parallel() // TestMain counts goroutines after all tests
	var out bytes.Buffer
	if err := playDemo(t.Context(), config{Lease: defaultLease, Plain: true, Out: &out, Command: again}); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
}

func TestACandidateThatEndsUnexpectedlyFailsTheDemo(t *testing.T) {
	var out bytes.Buffer
	broken := func(args ...string) *exec.Cmd {
		if args[0] == candidateCommand {
			args[1] = `{"name":"A","driver":"pgx","lease":1}` // New refuses that lease
		}
		return again(args...)
	}
	err := playDemo(t.Context(), config{Lease: defaultLease, Plain: true, Out: &out, Command: broken})
	if err == nil || !strings.Contains(err.Error(), "candidate A ended unexpectedly") || !strings.Contains(err.Error(), "WithLease") {
		t.Errorf("got %v\n%s", err, &out)
	}
}

func TestCancellingTheContextInterruptsTheDemo(t *testing.T) {
	ctx, cancel := contextUntil(t, "Scene 1")
	err := playDemo(ctx, config{Lease: defaultLease, Plain: true, Out: cancel, Command: again})
	if !errors.Is(err, errInterrupted) || err.Error() != errInterrupted.Error() {
		t.Errorf("got %v, want errInterrupted alone", err)
	}
}

func TestTheGuardKillsGuardedProcessesOnly(t *testing.T) {
	guarded, released := again("demo-sleeper"), again("demo-sleeper")
	for _, cmd := range []*exec.Cmd{guarded, released} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	orders := fmt.Sprintf("+%d\n+%d\n-%d\n+1", guarded.Process.Pid, released.Process.Pid, released.Process.Pid)
	orders = strings.TrimSuffix(orders, "+1") // as if the demo died while it wrote a line
	if err := runGuard(strings.NewReader(orders)); err != nil {
		t.Fatal(err)
	}
	if err := guarded.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the guarded process ended by %v, want by SIGKILL", err)
	}
	if err := released.Process.Kill(); err != nil {
		t.Errorf("the released process lives no more: %v", err)
	}
	_ = released.Wait()
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
	m := model{lease: 30 * time.Second, log: log, board: new(board), began: began, width: 80}
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
┌──────────────────┬────────────┬────────────┬───────┬──────────────────┐
│ scene            │ old leader │ new leader │ token │ without a leader │
├──────────────────┼────────────┼────────────┼───────┼──────────────────┤
│ 1 first election │ –          │ A          │ 7     │ 1.23 s           │
└──────────────────┴────────────┴────────────┴───────┴──────────────────┘

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

// untilWriter cancels a context when a text is written.
type untilWriter struct {
	text   []byte
	cancel context.CancelFunc
}

func (w untilWriter) Write(p []byte) (int, error) {
	if bytes.Contains(p, w.text) {
		w.cancel()
	}
	return len(p), nil
}

func contextUntil(t *testing.T, text string) (context.Context, untilWriter) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, untilWriter{[]byte(text), cancel}
}
