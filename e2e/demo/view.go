//go:build unix

package main

import (
	"fmt"
	"os"
	"time"

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
