//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/pgelector/pgelector/e2e/history"
)

// picture is a live view in the middle of the frozen leader's scene.
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
	for _, msg := range []tea.Msg{beginsMsg(1), endsMsg(outcome{number: 1, new: "A", token: 281474976711380, headless: time.Second}),
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
		"✓", "1 first election", "1.00 s without a leader", "▸ 2 clean resignation", "7 a write that came too late", "six"} {
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
