//go:build unix

package main

import (
	"fmt"
	"io"

	"github.com/pgelector/pgelector/e2e/history"
)

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
