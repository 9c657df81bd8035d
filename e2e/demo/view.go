//go:build unix

package main

import (
	"fmt"
	"image/color"
	"io"
	"os"
	"strconv"
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
	fmt.Fprintf(v.out, "  %s  %s\n", clock(v.began), line)
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
		fmt.Fprintf(r.out, "  %s  %s\n", mark, r.style(bold).Render(p.Claim))
		for part := range strings.SplitSeq(p.Checked, "; ") {
			fmt.Fprintf(r.out, "        %s\n", part)
		}
		for _, v := range p.Violations {
			fmt.Fprintf(r.out, "        %s\n", r.style(bad).Render(v))
		}
	}
}

func (r report) table(outcomes []outcome) string {
	t := table.New().
		Headers("scene", "old leader", "new leader", "token", "without a leader").
		Border(lipgloss.NormalBorder()).BorderStyle(r.style(faint)).
		StyleFunc(func(row, column int) lipgloss.Style {
			style := lipgloss.NewStyle()
			switch {
			case row == table.HeaderRow:
				style = r.style(bold)
			case column == 1 || column == 2:
				style = r.style(colourOf(cell(outcomes[row], column)))
			}
			return style.Padding(0, 1)
		})
	for _, o := range outcomes {
		t.Row(cell(o, 0), cell(o, 1), cell(o, 2), cell(o, 3), cell(o, 4))
	}
	return t.String()
}

func cell(o outcome, column int) string {
	switch column {
	case 0:
		return fmt.Sprintf("%d %s", o.number, o.title)
	case 1:
		if o.old == "" {
			return "–"
		}
		return o.old
	case 2:
		return o.new
	case 3:
		return strconv.FormatInt(o.token, 10)
	}
	return seconds(o.vacant)
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
