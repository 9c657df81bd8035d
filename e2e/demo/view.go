//go:build unix

package main

import (
	"fmt"
	"image/color"
	"io"
	"os"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/mattn/go-isatty"

	"github.com/pgelector/pgelector/e2e/history"
)

// view is how the play is shown. Its methods are called from one goroutine.
type view interface {
	begins(scene int)     // a scene begins, from 1
	says(line string)     // something happens in it
	ends(outcome outcome) // it has ended
	close()               // no other call follows
}

// wantsLive reports whether standard output is a terminal that wants more than
// plain lines.
func wantsLive() bool {
	return isatty.IsTerminal(os.Stdout.Fd()) && os.Getenv("TERM") != "dumb" &&
		os.Getenv("NO_COLOR") == "" && os.Getenv("CI") == ""
}

// outcome is what came of a scene.
type outcome struct {
	number   int
	title    string
	old      string // who led before, "" if nobody did
	new      string
	token    int64
	headless time.Duration // the time without a leader
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// clock is the time since the play began.
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

// plain shows the play as lines of text.
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
	fmt.Fprintf(v.out, "  => %s leads, token %d; without a leader for %s\n", o.new, o.token, seconds(o.headless))
}

func (v *plain) close() {}
