// Package report writes the results of one run as RESULTS.md and plots.
package report

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgelector/pgelector/bench/internal/results"
)

// Write writes results.json, the plots and RESULTS.md to a directory.
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
	p.shards()
	p.inProcess()
	p.mistakes()
	p.purposes()
	p.method()
	return os.WriteFile(filepath.Join(dir, "RESULTS.md"), []byte(p.text.String()), 0o644)
}

// Read reads results.json.
func Read(dir string) (*results.Results, error) {
	return results.Load(filepath.Join(dir, "results.json"))
}

// Again writes the plots and RESULTS.md from results.json.
func Again(dir string) error {
	r, err := Read(dir)
	if err != nil {
		return err
	}
	return Write(dir, r)
}

// page builds RESULTS.md.
type page struct {
	r    *results.Results
	text strings.Builder
}

func (p *page) say(format string, args ...any) {
	fmt.Fprintf(&p.text, format+"\n", args...)
}

// row writes one row of a table.
func (p *page) row(cells ...string) { p.say("| %s |", strings.Join(cells, " | ")) }

// table writes the head of a table. All columns but the first hold numbers.
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
	p.say("One run of `%s` at commit %s on %s, which took %v. The run wrote this page; [results.json](results.json) has every sample.",
		p.r.Command, p.r.Commit, p.r.Date.Format("2 January 2006"), p.r.Took)
	for _, k := range p.r.Kept {
		p.say("Not of this run are %s: these are of `%s` at commit %s on %s.", named(k.Rows), k.Command, k.Commit, k.Date.Format("2 January 2006"))
	}
	if p.r.Quick {
		p.say("**A quick run: few samples, and without the rows that take long.**")
	}
	p.say("\nThe times come from one machine, with its noise. Compare the ratios to the *raw lock*, a client that only waits in")
	p.say("`pg_advisory_lock`. The run measures it in turn with the others.")
	p.table("machine", "")
	for _, f := range p.r.Facts {
		p.row(f.Name, f.Value)
	}
}

func (p *page) purposes() {
	p.say("\n## What each is for\n")
	p.say("The systems serve different purposes. The figures compare one aspect of each.")
	p.say("\n| system | settings | what it is for, and where it is better |\n| --- | --- | --- |")
	for _, s := range p.r.Systems {
		p.row(s.Name, s.Settings, s.For)
	}
}

func (p *page) method() {
	p.say(`
## How it was measured

- Every candidate is a process. Each sample starts a leader, then a follower, waits until the follower follows, and
  injects the fault at a random moment of the system's longest interval.
- Times are read from the machine's monotonic clock, which all processes share. The time without a leader starts just
  before the fault. After a resignation it starts when the leader's work has returned, before the lock is released. It
  ends at the first line of the next leader's work.
- Failovers that take milliseconds run one at a time, and the systems take turns. Those that take seconds run %d at a
  time, which adds a few milliseconds. A server restart affects all systems at once.
- The old leader's process checks about once a millisecond whether it regards itself as the leader. For pgelector it calls
  Term.Valid; for etcd, Consul and vault it looks at the channel that closes at a loss; for client-go it calls IsLeader
  and looks at the context of the work; for river it reads the elector's debug log. The other systems offer no such check.
- pg_stat_statements counts the statements of the candidate's role. The kernel counts the CPU time of each backend, and of
  the processes of etcd, Consul, and kube-apiserver with its etcd, where the time that they use without candidates is
  subtracted and the rest divided evenly. Consul and kube-apiserver run only while their candidates are measured. WAL is the
  distance between two values of pg_current_wal_insert_lsn(), without the records of running transactions. Only the
  leader and followers of one system run meanwhile.
- p99 is the nearest rank. With fewer than 100 samples it is the worst sample.`, results.Parallel)
}

// duration formats milliseconds with three significant digits.
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

// number formats about three significant digits.
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

// ratio formats x as a multiple of the raw lock's time.
func ratio(x, raw float64) string {
	if math.IsInf(x, 0) || math.IsNaN(x) || math.IsNaN(raw) || raw == 0 {
		return ""
	}
	if r := x / raw; r < 10 {
		return fmt.Sprintf(" (%.1f×)", r)
	}
	return fmt.Sprintf(" (%.0f×)", x/raw)
}

// named lists what some rows have, and of which systems.
func named(rows []results.Row) string {
	var kinds []string
	systems := map[string][]string{}
	for _, row := range rows {
		if !slices.Contains(kinds, row.Kind) {
			kinds = append(kinds, row.Kind)
		}
		if row.System != "" && !slices.Contains(systems[row.Kind], row.System) {
			systems[row.Kind] = append(systems[row.Kind], row.System)
		}
	}
	for i, kind := range kinds {
		if systems[kind] != nil {
			kinds[i] += " of *" + strings.Join(systems[kind], "*, *") + "*"
		}
	}
	return "the " + strings.Join(kinds, "; the ")
}
