//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/ha/cluster"
	"github.com/pgelector/pgelector/e2e/history"
)

// report is the result of a run.
type report struct {
	rows          []row
	proofs        []history.Proof
	beliefs       []belief
	reinitialized int // members that the harness reinitialized
}

func judge(events []history.Event) report {
	r := report{rows: measure(events), proofs: prove(events), beliefs: believed(events)}
	for _, e := range events {
		if e.Kind == history.Remade {
			r.reinitialized++
		}
	}
	return r
}

func (r report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d faults of %d kinds\n\n%s\n", r.faults(), len(faults()), r.table())
	if t := r.beliefTable(); t != "" {
		fmt.Fprintln(out, t)
	}
	history.Print(out, r.proofs)
}

func (r report) faults() (n int) {
	for _, row := range r.rows {
		n += row.times
	}
	return n
}

// table returns a Markdown table.
func (r report) table() string {
	var b strings.Builder
	b.WriteString("| fault | mode | times | without a leader: median | longest | since the route is back: median | longest | overlap of belief, longest | commits acknowledged | lost | `Run`s ended |\n")
	b.WriteString("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, row := range r.rows {
		name, mode, _ := strings.Cut(row.text, ", ")
		fmt.Fprintf(&b, "| `%s` | %s | %d | %s | %s | %s | %s | %s | %d | %s | %d |\n", name, mode, row.times,
			short(quantile(row.without, 0.5)), short(quantile(row.without, 1)),
			row.backText(0.5), row.backText(1),
			short(row.overlap), row.acknowledged, row.lostText(), row.quit)
	}
	return b.String()
}

// backText formats a quantile of back; it is empty if the leader never changed.
func (r row) backText(q float64) string {
	if len(r.back) == 0 {
		return ""
	}
	return short(quantile(r.back, q))
}

// lostText shows separately what was lost with a timeline.
func (r row) lostText() string {
	if r.discarded == 0 {
		return fmt.Sprint(r.lost)
	}
	return fmt.Sprintf("%d (%d discarded)", r.lost, r.discarded)
}

// short formats a duration with few digits.
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// write writes the page. The page names the command and the commit that made it.
func (r report) write(path, command string) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# What a failover costs

Written by %s, of commit %s, on %s: do not edit. [docs/servers.md](../../docs/servers.md) says what follows from it.

The cluster has three members of PostgreSQL under Patroni (ttl %v, loop_wait 1 s, retry_timeout 3 s), etcd, HAProxy, which
checks Patroni each second, and PgBouncer in session mode, all on one machine. There are %d candidates:
%s.
Their lease is %v, their heartbeat interval %v, their retry interval %v.

`, "`"+command+"`", commit(), time.Now().UTC().Format("2 January 2006"), cluster.TTL, len(seats), routes(), fleet.Lease, fleet.Heartbeat, retry)
	b.WriteString("| fault | what happens |\n|---|---|\n")
	for _, f := range faults() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", f.name, f.about)
	}
	b.WriteString(`
- *Without a leader* begins when a primary takes writes. Probes write to each member, directly, all the time.
- *Since the route is back* ends at the next term, and counts only while new connections of the last leader, if it lives,
  reach a primary (the test makes one each ` + fmt.Sprint(reaching) + `). An attempt to connect to a frozen host takes the
  ` + fmt.Sprint(connectTimeout) + ` of ` + "`connect_timeout`" + `.
- *Overlap* is how long two processes believed at once that they led.
- *Commits* are those of ` + "`Term.InTx`" + `. A commit is *lost* if it was acknowledged and is not in the database at the end. It
  is *discarded* if Patroni returned to an older timeline after it had promoted a standby.

With each fault one follower is killed, and a new process replaces it.

`)
	b.WriteString("| mode | replication | candidates |\n|---|---|---|\n| async | asynchronous | as above |\n| proxied | asynchronous | all connect through HAProxy, with `on-marked-down shutdown-sessions` |\n| sync | synchronous: `synchronous_mode: true` | as above |\n| guarded | synchronous: `synchronous_mode: true` | all have `WithSynchronousStandby`, and none has a shared session |\n| leases | asynchronous | see below |\n\n")
	b.WriteString(r.table())
	r.writeBeliefs(&b)
	fmt.Fprintf(&b, "\n%d members no longer followed the primary and were reinitialized.\n", r.reinitialized)
	b.WriteString("\nThe checks:\n\n")
	for _, p := range r.proofs {
		held := "held"
		if !p.Holds() {
			held = fmt.Sprintf("**BROKEN, %d times**", len(p.Violations))
		}
		fmt.Fprintf(&b, "- %s: %s. %s.\n", p.Claim, held, p.Checked)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func routes() string {
	var all []string
	for _, s := range seats {
		all = append(all, s.String())
	}
	return strings.Join(all, "; ")
}

// commit returns the commit of the working tree.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// asynchronous reports whether replication was asynchronous during the episode.
func (e episode) asynchronous() bool { return asynchronous(e.mode()) }

// silences reports whether the fault could keep a leader from hearing of its session's end.
func (e episode) silences() bool {
	name, _, _ := strings.Cut(e.text, ", ")
	return slices.Contains(silent, name)
}

// mode returns the mode of the run at the time.
func (e episode) mode() string { return mode(e.text) }

func mode(text string) string {
	_, mode, _ := strings.Cut(text, ", ")
	return mode
}

// An episode lasts from the start of a fault until a candidate leads in a healthy cluster
// again.
type episode struct {
	text              string
	struck, calm, end history.Time
}

func episodes(events []history.Event) (all []episode) {
	terms := history.Terms(events)
	for _, e := range events {
		switch e.Kind {
		case history.Struck:
			all = append(all, episode{text: e.Text, struck: e.At, calm: math.MaxInt64, end: math.MaxInt64})
		case history.Calm:
			if last := len(all) - 1; last >= 0 && all[last].calm == math.MaxInt64 {
				all[last].calm, all[last].end = e.At, ledSince(terms, e.At)
			}
		}
	}
	return all
}

// ledSince returns the first moment at or after at when a candidate led.
func ledSince(terms []history.Term, at history.Time) history.Time {
	led := history.Time(math.MaxInt64)
	for _, t := range terms {
		if t.End >= at {
			led = min(led, max(t.Begin, at))
		}
	}
	return led
}

// episodeOf returns the first episode that was not over at the moment. Events between two
// faults count for the second.
func episodeOf(all []episode, at history.Time) *episode {
	i := slices.IndexFunc(all, func(e episode) bool { return at <= e.calm })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// nextLed returns when a candidate led again after the first time without a leader.
func (e episode) nextLed(led []stretch) (at history.Time, is bool) {
	for _, s := range led {
		if s.from > e.struck && s.from <= e.end {
			return s.from, true
		}
	}
	return 0, false
}

// watched reports whether the former leader's route was watched.
func (e episode) watched(open []stretch) bool {
	return slices.ContainsFunc(open, func(s stretch) bool { return s.to > e.struck && s.from < e.end })
}

// stretch is an interval of time.
type stretch struct{ from, to history.Time }

// union merges overlapping intervals.
func union(all []stretch) (merged []stretch) {
	slices.SortFunc(all, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	for _, s := range all {
		if last := len(merged) - 1; last >= 0 && s.from <= merged[last].to {
			merged[last].to = max(merged[last].to, s.to)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// length returns how much of the window lies in the intervals in but not in without. Both must
// be unions.
func length(window stretch, in, without []stretch) (sum time.Duration) {
	for _, s := range in {
		from, to := max(s.from, window.from), min(s.to, window.to)
		if to <= from {
			continue
		}
		sum += to.Sub(from)
		for _, not := range without {
			if a, b := max(from, not.from), min(to, not.to); b > a {
				sum -= b.Sub(a)
			}
		}
	}
	return sum
}

// row is the cost of one kind of fault in one mode.
type row struct {
	text                     string
	times                    int
	without                  []time.Duration // per fault: the time without a leader while a primary took writes
	back                     []time.Duration // the time until the next term while the former leader's route reached a primary
	overlap                  time.Duration   // the longest overlap
	acknowledged, lost, quit int
	discarded                int // of the lost: those lost with a timeline
}

// measure returns a row for each kind of fault and mode.
func measure(events []history.Event) []row {
	rows, order := map[string]*row{}, []string{}
	of := func(text string) *row {
		if rows[text] == nil {
			rows[text] = &row{text: text}
			order = append(order, text)
		}
		return rows[text]
	}
	first := fleet.Of("", events)
	var led, writable, open []stretch
	for _, t := range history.Terms(first) {
		led = append(led, stretch{t.Begin, t.End})
	}
	kept := keptOf(events)
	for _, e := range events {
		switch s := (stretch{e.At, e.At.Add(e.Took)}); e.Kind {
		case history.Writable:
			writable = append(writable, s)
		case history.Reached:
			open = append(open, s)
		}
	}
	led, writable, open = union(led), union(writable), union(open)
	all := episodes(first)
	for _, e := range all {
		r := of(e.text)
		r.times++
		if e.end != math.MaxInt64 {
			r.without = append(r.without, length(stretch{e.struck, e.end}, writable, led))
			if next, is := e.nextLed(led); is && e.watched(open) {
				r.back = append(r.back, length(stretch{e.struck, next}, open, led))
			}
		}
	}
	for _, o := range overlaps(first) {
		if e := episodeOf(all, o.from); e != nil {
			of(e.text).overlap = max(of(e.text).overlap, o.took)
		}
	}
	for _, e := range events {
		in := episodeOf(all, e.At)
		switch {
		case in == nil:
		case e.Kind == history.Quit:
			of(in.text).quit++
		case e.Kind == history.Wrote:
			of(in.text).acknowledged++
			if !kept.writes[e.New] {
				of(in.text).lost++
				if !kept.registers[e.Register] {
					of(in.text).discarded++
				}
			}
		}
	}
	slices.Sort(order)
	var result []row
	for _, text := range order {
		slices.Sort(rows[text].without)
		slices.Sort(rows[text].back)
		result = append(result, *rows[text])
	}
	return result
}

// quantile returns a quantile of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(math.Ceil(q*float64(len(sorted))))-1)]
}
