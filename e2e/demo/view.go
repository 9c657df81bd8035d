//go:build unix

package main

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/mattn/go-isatty"
	"github.com/pgelector/pgelector/e2e/history"
)

// view shows the demo. Its methods are called from one goroutine.
type view interface {
	begins(scene int)     // a scene begins, from 1
	says(line string)     // something happens in it
	ends(outcome outcome) // it has ended
	close()               // no other call follows
}

// wantsLive reports whether standard output is a terminal that supports the live view.
func wantsLive() bool {
	return isatty.IsTerminal(os.Stdout.Fd()) && os.Getenv("TERM") != "dumb" &&
		os.Getenv("NO_COLOR") == "" && os.Getenv("CI") == ""
}

// outcome is the result of a scene.
type outcome struct {
	number int
	title  string
	old    string // the previous leader, "" if there was none
	new    string
	token  int64
	vacant time.Duration // the time without a leader
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// clock formats the time since the start of the demo.
func clock(since history.Time) string {
	return fmt.Sprintf("%5.1f s", history.Now().Sub(since).Seconds())
}

// columns is the width of a small terminal. No line is wider: the terminal would cut a word.
const columns = 80

// wrapped breaks a text between words into lines that fit beside an indent into the width.
func wrapped(text string, indent, width int) (lines []string) {
	for runes := []rune(text); ; {
		if indent+len(runes) <= width {
			return append(lines, string(runes))
		}
		end := width - indent
		for end > 0 && runes[end] != ' ' {
			end--
		}
		if end == 0 { // one long word
			return append(lines, string(runes))
		}
		lines = append(lines, strings.TrimRight(string(runes[:end]), " "))
		runes = runes[end+1:]
	}
}

// paragraph is a wrapped text whose further lines are indented, too.
func paragraph(text string, indent int) string {
	return strings.Join(wrapped(text, indent, columns), "\n"+strings.Repeat(" ", indent))
}

// Colours of the terminal's own palette, so that they suit its background.
var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Foreground(lipgloss.Color("8"))
	good  = lipgloss.NewStyle().Foreground(lipgloss.Color("10")).Bold(true)
	bad   = lipgloss.NewStyle().Foreground(lipgloss.Color("9")).Bold(true)
	cold  = lipgloss.NewStyle().Foreground(lipgloss.Color("12")).Bold(true)
)

// colours of candidates, by name.
var colours = []color.Color{lipgloss.Color("14"), lipgloss.Color("13"), lipgloss.Color("11"), lipgloss.Color("10")}

func colourOf(name string) lipgloss.Style {
	if len(name) != 1 || name[0] < 'A' {
		return faint
	}
	return lipgloss.NewStyle().Foreground(colours[int(name[0]-'A')%len(colours)]).Bold(true)
}

// plain shows the demo as lines of text.
type plain struct {
	out   io.Writer
	began history.Time
}

func newPlain(out io.Writer) *plain { return &plain{out: out, began: history.Now()} }

func (v *plain) begins(number int) {
	fmt.Fprintf(v.out, "\nScene %d: %s\n", number, scenes[number-1].title)
}

func (v *plain) says(line string) {
	began := clock(v.began)
	fmt.Fprintf(v.out, "  %s  %s\n", began, paragraph(line, 4+len(began)))
}

func (v *plain) ends(o outcome) {
	fmt.Fprintf(v.out, "  => %s leads, token %d; without a leader for %s\n", o.new, o.token, seconds(o.vacant))
}

func (v *plain) close() {}

// report prints the result at the end.
type report struct {
	out      io.Writer
	coloured bool
}

func (r report) print(outcomes []outcome, proofs []history.Proof) {
	fmt.Fprintf(r.out, "\n%s\n%s\n", r.style(bold).Render("What happened:"), r.table(outcomes))
	fmt.Fprintf(r.out, "\n%s\n", r.style(bold).Render("Proof, from what the processes recorded:"))
	for _, p := range proofs {
		mark := r.style(good).Render("ok  ")
		if !p.Holds() {
			mark = r.style(bad).Render("FAIL")
		}
		const indent = 8
		for i, line := range wrapped(p.Claim, indent, columns) {
			if i > 0 {
				mark = "    "
			}
			fmt.Fprintf(r.out, "  %s  %s\n", mark, r.style(bold).Render(line))
		}
		for part := range strings.SplitSeq(p.Checked, "; ") {
			fmt.Fprintf(r.out, "        %s\n", paragraph(part, indent))
		}
		for _, v := range p.Violations {
			for _, line := range wrapped(v, indent, columns) {
				fmt.Fprintf(r.out, "        %s\n", r.style(bad).Render(line))
			}
		}
	}
}

func (r report) table(outcomes []outcome) string {
	t := table.New().
		Headers("scene", "old", "new", "token", "no leader").
		Border(lipgloss.NormalBorder()).BorderStyle(r.style(faint)).
		StyleFunc(func(row, column int) lipgloss.Style {
			style := lipgloss.NewStyle()
			switch {
			case row == table.HeaderRow:
				style = r.style(bold)
			case column == 1 || column == 2:
				style = r.style(colourOf(outcomes[row].cells()[column]))
			}
			return style.Padding(0, 1)
		})
	for _, o := range outcomes {
		t.Row(o.cells()...)
	}
	return t.String()
}

// cells are its row in the table.
func (o outcome) cells() []string {
	return []string{fmt.Sprintf("%d %s", o.number, o.title), cmp.Or(o.old, "–"), o.new, fmt.Sprint(o.token), seconds(o.vacant)}
}

func (r report) style(s lipgloss.Style) lipgloss.Style {
	if !r.coloured {
		return lipgloss.NewStyle()
	}
	return s
}

const timelineLabel = "who led  "

// timeline draws two lines. The first has the numbers of the scenes above where they began.
// The second shows who led when: gaps where nobody led, and pale blocks while a leader was
// frozen.
func (m model) timeline(now history.Time) string {
	width := min(max(m.width, 40), 3*(panelWidth+2)) - len(timelineLabel)
	step := max(now.Sub(m.began)/time.Duration(width), 100*time.Millisecond)
	at := func(t history.Time) int { return min(int(t.Sub(m.began)/step), width-1) }

	numbers := []rune(strings.Repeat(" ", width))
	for i, t := range m.sceneBegan {
		numbers[at(t)] = rune('1' + i)
	}
	blocks := make([]string, at(now)+1)
	for _, r := range m.board.reign {
		end := r.ended
		if end == 0 {
			end = min(now, r.last)
		}
		for i := at(r.began); i <= at(end); i++ {
			block := "█"
			if r.frozen != 0 && i > at(r.frozen) {
				block = "░"
			}
			blocks[i] = colourOf(r.process).Render(block)
		}
	}
	for i, block := range blocks {
		if block == "" {
			blocks[i] = faint.Render("·")
		}
	}
	return lipgloss.JoinVertical(lipgloss.Left,
		faint.Render("scene    "+string(numbers)),
		faint.Render(timelineLabel)+strings.Join(blocks, ""))
}

// board is the state of the candidates, built from their events. It is not safe for concurrent
// use: the stage and the live view each have one.
type board struct {
	read  int // events of the log that were applied
	seats []*seat
	reign []*reign // in order of their beginning
}

// seat is one candidate. A new candidate takes the seat of a dead one.
type seat struct {
	name, driver string
	pid          int

	leading  bool // the last result of IsLeader
	token    int64
	deadline history.Time
	frozen   bool
	dead     bool
	left     bool // dead, after an orderly exit

	follows  history.Time    // its last attempt that found another leader
	thawed   *history.Event  // until IsLeader has returned again
	woke     *history.Event  // the first IsLeader after the thaw
	demoted  *history.Event  // the last
	resigned *history.Event  // the last
	checked  *history.Event  // the last
	tried    []history.Event // Wrote and Refused, since the last check
}

// reign is one term, as its process reported it.
type reign struct {
	process string
	token   int64
	began   history.Time
	last    history.Time // when it last believed to lead; while it goes on, when its lease ends
	ended   history.Time // 0 while it goes on
	frozen  history.Time // 0 if it was not
}

// update applies the new events of the log.
func (b *board) update(events []history.Event) {
	for _, e := range events {
		b.apply(e)
	}
	b.read += len(events)
}

func (b *board) apply(e history.Event) {
	if e.Kind == history.Hello {
		b.seat(&seat{name: e.Process, driver: e.Text, pid: e.PID})
		return
	}
	s := b.of(e.Process)
	if s == nil {
		return
	}
	switch e.Kind {
	case history.Sample:
		s.sampled(e, b.current(e.Process))
	case history.Began:
		b.reign = append(b.reign, &reign{process: e.Process, token: e.Token, began: e.At, last: e.At})
	case history.Ended:
		b.end(e.Process, e.At)
	case history.Demoted:
		s.demoted = &e
	case history.Resigned:
		s.resigned = &e
	case history.Checked:
		s.checked, s.tried = &e, nil
	case history.Wrote, history.Refused:
		s.tried = append(s.tried, e)
	case history.Attempt:
		if e.Text == "busy" {
			s.follows = e.At
		}
	case history.Killed:
		s.dead, s.leading = true, false
		b.end(e.Process, e.At)
	case history.Bye:
		s.dead, s.left, s.leading = true, true, false
	case history.Frozen:
		s.frozen = true
		if r := b.current(e.Process); r != nil {
			r.frozen = e.At
		}
	case history.Thawed:
		s.frozen, s.thawed, s.woke = false, &e, nil
	}
}

func (s *seat) sampled(e history.Event, current *reign) {
	s.leading = e.Leading
	if e.Leading {
		s.token, s.deadline = e.Token, e.Deadline
		if current != nil {
			current.last = e.Deadline
		}
	}
	if s.thawed != nil && e.At >= s.thawed.At {
		s.thawed, s.woke = nil, &e
	}
}

// seat adds a candidate.
func (b *board) seat(s *seat) {
	if i := slices.IndexFunc(b.seats, func(s *seat) bool { return s.dead }); i >= 0 {
		b.seats[i] = s
		return
	}
	b.seats = append(b.seats, s)
	slices.SortFunc(b.seats, func(x, y *seat) int { return cmp.Compare(x.name, y.name) })
}

func (b *board) of(name string) *seat {
	if i := slices.IndexFunc(b.seats, func(s *seat) bool { return s.name == name }); i >= 0 {
		return b.seats[i]
	}
	return nil
}

// current returns the current reign of a process, or nil.
func (b *board) current(name string) *reign {
	for _, r := range slices.Backward(b.reign) {
		if r.process == name && r.ended == 0 {
			return r
		}
	}
	return nil
}

// end ends a reign. The reign of a frozen process ends with its lease.
func (b *board) end(name string, at history.Time) {
	if r := b.current(name); r != nil {
		r.ended = min(at, r.last)
	}
}

// after returns the first reign with a larger token.
func (b *board) after(token int64) *reign {
	if i := slices.IndexFunc(b.reign, func(r *reign) bool { return r.token > token }); i >= 0 {
		return b.reign[i]
	}
	return nil
}

// settled returns the current reign, once its process reports that it leads and all others
// have since found another leader.
func (b *board) settled() *reign {
	if len(b.reign) == 0 {
		return nil
	}
	r := b.reign[len(b.reign)-1]
	if s := b.of(r.process); r.ended != 0 || s == nil || s.frozen || !s.leading {
		return nil
	}
	for _, s := range b.seats {
		if s.name != r.process && !s.dead && (s.frozen || s.follows <= r.began) {
			return nil
		}
	}
	return r
}
