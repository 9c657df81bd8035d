// Package report turns the results of one run into RESULTS.md and plots.
package report

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/pgelector/pgelector/bench/internal/results"
)

// Write writes everything below a directory.
func Write(dir string, r *results.Results) error {
	if err := os.MkdirAll(filepath.Join(dir, "plots"), 0o755); err != nil {
		return err
	}
	if err := r.Save(filepath.Join(dir, "results.json")); err != nil {
		return err
	}
	if err := plots(filepath.Join(dir, "plots"), r); err != nil {
		return err
	}
	p := &page{r: r}
	p.head()
	p.goals()
	p.gaps()
	p.overlaps()
	p.rest()
	p.growth()
	p.inProcess()
	p.purposes()
	p.method()
	return os.WriteFile(filepath.Join(dir, "RESULTS.md"), []byte(p.text.String()), 0o644)
}

// Again writes everything anew from results.json.
func Again(dir string) error {
	r, err := results.Load(filepath.Join(dir, "results.json"))
	if err != nil {
		return err
	}
	return Write(dir, r)
}

// page is RESULTS.md in the making.
type page struct {
	r    *results.Results
	text strings.Builder
}

func (p *page) say(format string, args ...any) {
	fmt.Fprintf(&p.text, format+"\n", args...)
}

// row writes one row of a table.
func (p *page) row(cells ...string) { p.say("| %s |", strings.Join(cells, " | ")) }

// table writes the head of a table whose first column is text and whose others are numbers.
func (p *page) table(heads ...string) {
	p.say("")
	p.row(heads...)
	rule := []string{"---"}
	for range heads[1:] {
		rule = append(rule, "---:")
	}
	p.row(rule...)
}

func (p *page) head() {
	p.say("# Leader elections side by side\n")
	p.say("One run of `%s` on %s, which took %v. Written by the run itself; [results.json](results.json) has every sample.",
		p.r.Command, p.r.Date.Format("2 January 2006"), p.r.Took)
	if p.r.Quick {
		p.say("**A quick run: few samples, and rows that take long are left out.**")
	}
	p.say("\nThe times are of one machine with all its noise. What carries over to another is the ratios to the *raw lock*: a")
	p.say("bare `pg_advisory_lock` waiter, with nothing around it, measured in the same run in turn with the others.")
	p.table("machine", "")
	for _, f := range p.r.Facts {
		p.row(f.Name, f.Value)
	}
}

func (p *page) purposes() {
	p.say("\n## What each is for\n")
	p.say("None of the others is a worse try at the same thing. Numbers are given where a system can be driven to them; here is what it was made for.")
	p.say("\n| system | settings | what it is for, and where it is better |\n| --- | --- | --- |")
	for _, s := range p.r.Systems {
		p.row(s.Name, s.Settings, s.For)
	}
}

func (p *page) method() {
	p.say(`
## How it was measured

- Every candidate is a process of its own: this program started again. A leader, one follower that has settled down,
  then the fault, at a random moment of the system's own clockwork; new processes for each sample.
- Times are of the machine's monotonic clock, which all processes share. The clock starts just before the fault (for a
  resignation: when the leader's work has ended, before the release begins) and stops at the first line of the next leader's work.
- What takes milliseconds is measured alone, the systems in turn (A B C, A B C, …). What takes seconds is measured %d at a
  time, which costs it a few milliseconds. A server restart hits all systems at once.
- The old leader's belief is asked about once a millisecond. For pgelector it is the term's validity, for etcd the session,
  for vault the channel that Lock returned, for river what its elector logs for
  debugging (it is not exported). The others have nothing to ask: they do not look.
- Statements are those that pg_stat_statements counts for the candidate's role. Processor time is the kernel's account of each
  backend (and of the etcd process, less what it takes without candidates, shared out evenly). WAL is the movement
  of pg_current_wal_insert_lsn(), less the record of running transactions that the server writes by itself now and then. Leader and follower run alone then.
- p99 of n samples is the nearest rank: with n below 100 it is the worst sample.`, atATime)
}

// atATime is what measure does; it is said in the text.
const atATime = 14

// duration writes milliseconds with three significant digits.
func duration(ms float64) string {
	switch {
	case math.IsInf(ms, 0):
		return "never"
	case math.IsNaN(ms):
		return "–"
	case ms >= 10_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}

// number writes about three significant digits.
func number(x float64) string {
	switch {
	case x < 0 || math.IsNaN(x):
		return "–"
	case x == 0:
		return "0"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// ratio writes how many times the raw limit something is.
func ratio(x, raw float64) string {
	if math.IsInf(x, 0) || math.IsNaN(x) || math.IsNaN(raw) || raw == 0 {
		return ""
	}
	if r := x / raw; r < 10 {
		return fmt.Sprintf(" (%.1f×)", r)
	}
	return fmt.Sprintf(" (%.0f×)", x/raw)
}

// optional is a time that may not have come.
func optional(ms *float64) string {
	if ms == nil {
		return "–"
	}
	return duration(*ms)
}
