//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
)

// report is what came of a run, small enough to be kept.
type report struct {
	Seed   uint64
	Struck map[string]int // how often each fault did
	Proofs []history.Proof
	history.Timeline
}

func judge(seed uint64, events []history.Event) report {
	began := history.Time(math.MaxInt64)
	for _, e := range events {
		began = min(began, e.At)
	}
	r := report{Seed: seed, Struck: map[string]int{}, Proofs: prove(events)}
	for _, e := range events {
		if e.Kind == history.Struck {
			r.Struck[e.Text]++
		}
	}
	r.Timeline = history.NewTimeline(fleet.Of("", events), began, func(process string) string { return strings.TrimRight(process, "0123456789") })
	for _, s := range seats {
		r.Rows = append(r.Rows, s.ID+"  "+s.String())
	}
	return r
}

func (r report) print(out io.Writer) {
	struck := 0
	for _, n := range r.Struck {
		struck += n
	}
	fmt.Fprintf(out, "\nseed %d: %d faults of %d kinds\n", r.Seed, struck, len(r.Struck))
	for _, p := range r.Proofs {
		mark := "ok  "
		if !p.Holds() {
			mark = "FAIL"
		}
		fmt.Fprintf(out, "%s  %s: %s\n", mark, p.Claim, p.Checked)
		for _, v := range p.Violations {
			fmt.Fprintf(out, "      %s\n", v)
		}
	}
}

func (r report) failed() error { return history.FailedProofs(r.Proofs) }

func (r report) write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// judgeAgain is the verdict on a history that was kept.
func judgeAgain(c config) error {
	file, err := os.Open(c.judge)
	if err != nil {
		return err
	}
	defer file.Close()
	var log history.Log
	if err := log.Collect(file); err != nil {
		return err
	}
	return c.conclude(judge(c.seed, log.Since(0)))
}

// conclude tells what came of a run.
func (c config) conclude(r report) (err error) {
	r.print(os.Stdout)
	if c.summary != "" {
		err = r.write(c.summary)
	}
	return errors.Join(err, r.failed())
}
