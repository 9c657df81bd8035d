//go:build unix

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/mattn/go-isatty"

	"github.com/pgelector/pgelector/e2e/history"
)

// frames is the number of redraws per second.
const frames = 15

// linesOfScene is the number of lines shown per scene.
const linesOfScene = 4

// liveView shows the demo on a terminal. bubbletea runs in a goroutine, which close waits for.
type liveView struct {
	program *tea.Program
	done    chan struct{}
}

// newLive draws until it is closed. It calls stop if it is interrupted or fails.
func newLive(log *history.Log, stop context.CancelCauseFunc) *liveView {
	m := model{log: log, board: new(board), began: history.Now(), width: 80, stop: stop}
	var in io.Reader // for Ctrl-C, which is a key and not a signal while bubbletea owns the terminal
	if isatty.IsTerminal(os.Stdin.Fd()) {
		in = os.Stdin
	}
	v := &liveView{
		program: tea.NewProgram(m, tea.WithInput(in), tea.WithoutSignalHandler(), tea.WithFPS(2*frames)),
		done:    make(chan struct{}),
	}
	go func() {
		defer close(v.done)
		if _, err := v.program.Run(); err != nil {
			stop(fmt.Errorf("demo: the live view: %w (--plain does without)", err))
		}
	}()
	return v
}

type (
	beginsMsg int
	saysMsg   string
	endsMsg   outcome
	tickMsg   struct{}
	closeMsg  struct{}
)

func (v *liveView) begins(number int) { v.program.Send(beginsMsg(number)) }
func (v *liveView) says(line string)  { v.program.Send(saysMsg(line)) }
func (v *liveView) ends(o outcome)    { v.program.Send(endsMsg(o)) }

// close keeps the last picture on the screen.
func (v *liveView) close() {
	v.program.Send(closeMsg{})
	<-v.done
}

// model is the state of the live view.
type model struct {
	log   *history.Log
	board *board
	began history.Time
	width int
	stop  context.CancelCauseFunc

	number     int    // of the scene that is played
	lines      []line // said in it
	sceneBegan []history.Time
	outcomes   []outcome
	closed     bool
}

func tick() tea.Cmd {
	return tea.Tick(time.Second/frames, func(time.Time) tea.Msg { return tickMsg{} })
}

// Init implements tea.Model.
func (m model) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.board.update(m.log.Since(m.board.read))
	switch msg := msg.(type) {
	case tickMsg:
		return m, tick()
	case tea.WindowSizeMsg:
		m.width = msg.Width
	case tea.KeyPressMsg:
		if key := msg.String(); key == "ctrl+c" || key == "q" {
			m.stop(errInterrupted)
		}
	case beginsMsg:
		m.number, m.lines = int(msg), nil
		m.sceneBegan = append(m.sceneBegan, history.Now())
	case saysMsg:
		m.lines = append(m.lines, line{clock(m.began), string(msg)})
	case endsMsg:
		m.outcomes = append(m.outcomes, outcome(msg))
	case closeMsg:
		m.closed = true
		return m, tea.Quit
	}
	return m, nil
}

// View implements tea.Model.
func (m model) View() tea.View { return tea.NewView(m.picture()) }

// picture draws the view.
func (m model) picture() string {
	now := history.Now()
	parts := []string{"", m.panels(now), m.timeline(now), ""}
	for i := range scenes {
		parts = append(parts, m.sceneLine(i+1))
	}
	if !m.closed {
		lines := m.latest()
		parts = append(parts, "")
		for i := range linesOfScene {
			if i < len(lines) {
				parts = append(parts, " "+lines[i])
			} else {
				parts = append(parts, "")
			}
		}
	}
	view := strings.Join(parts, "\n") + "\n" // bubbletea clears the last line when it ends
	return lipgloss.NewStyle().MaxWidth(m.width).Render(view)
}

// line is what happened in a scene, and when.
type line struct{ at, text string }

// latest is the latest of what was said in the scene, as far as it fits.
func (m model) latest() (shown []string) {
	for _, l := range slices.Backward(m.lines) {
		lines := wrapped(l.text, len(" ")+len(l.at)+len("  "), m.width)
		if len(lines)+len(shown) > linesOfScene {
			break
		}
		for i, text := range lines {
			at := strings.Repeat(" ", len(l.at))
			if i == 0 {
				at = faint.Render(l.at)
			}
			lines[i] = at + "  " + text
		}
		shown = append(lines, shown...)
	}
	return shown
}

func (m model) sceneLine(number int) string {
	title := fmt.Sprintf("%d %-28s", number, scenes[number-1].title)
	switch {
	case number <= len(m.outcomes):
		o := m.outcomes[number-1]
		return fmt.Sprintf(" %s %s %s → %s   %s without a leader", good.Render("✓"), title,
			colourOf(o.old).Render(cmp.Or(o.old, "–")), colourOf(o.new).Render(o.new), seconds(o.vacant))
	case number == m.number:
		return " " + bold.Render("▸ "+title)
	}
	return faint.Render("   " + title)
}

const (
	panelWidth = 24 // inside the border: three fit into 80 columns
	barWidth   = 9
)

// panels draws the candidates side by side.
func (m model) panels(now history.Time) string {
	var all []string
	for _, s := range m.board.seats {
		all = append(all, s.panel(now))
	}
	return lipgloss.JoinHorizontal(lipgloss.Top, all...)
}

func (s *seat) panel(now history.Time) string {
	colour := colourOf(s.name)
	border, edge := lipgloss.RoundedBorder(), faint
	switch {
	case s.left:
	case s.dead:
		edge = bad
	case s.frozen:
		edge = cold
	case s.leading:
		border, edge = lipgloss.ThickBorder(), colour
	}
	lines := []string{
		spread(colour.Render(s.name)+" "+s.driver, faint.Render(fmt.Sprintf("pid %d", s.pid))),
		s.state(),
		s.tokenLine(),
		s.leaseLine(now),
	}
	return lipgloss.NewStyle().Border(border).BorderForeground(edge.GetForeground()).Padding(0, 1).Width(panelWidth + 2).
		Render(strings.Join(lines, "\n"))
}

// spread aligns one text left and one right.
func spread(left, right string) string {
	gap := panelWidth - 2 - lipgloss.Width(left) - lipgloss.Width(right)
	return left + strings.Repeat(" ", max(gap, 1)) + right
}

func (s *seat) state() string {
	switch {
	case s.left:
		return faint.Render("· has left")
	case s.dead:
		return bad.Render("✗ killed")
	case s.frozen:
		return cold.Render("■ frozen")
	case s.leading:
		return good.Render("★ leads")
	case s.follows != 0:
		return "· waits"
	}
	return faint.Render("· starts")
}

// tokenLine also shows the token of a frozen process.
func (s *seat) tokenLine() string {
	if s.leading {
		return spread(faint.Render("token"), fmt.Sprint(s.token))
	}
	return faint.Render("token –")
}

// leaseLine draws how long the leader may believe without a heartbeat.
func (s *seat) leaseLine(now history.Time) string {
	if !s.leading {
		return faint.Render("lease –")
	}
	left := max(s.deadline.Sub(now), 0)
	full := min(int(float64(barWidth)*left.Seconds()/validity.Seconds()+0.5), barWidth)
	style := good
	if full <= barWidth/2 {
		style = bad
	}
	return spread(faint.Render("lease"), style.Render(strings.Repeat("▰", full))+faint.Render(strings.Repeat("▱", barWidth-full))+
		fmt.Sprintf(" %4.1f s", left.Seconds()))
}
