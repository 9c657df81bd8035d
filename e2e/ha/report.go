//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
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
	reinitialized int // members that the harness reinitialized
}

func judge(events []history.Event) report {
	r := report{rows: measure(events), proofs: prove(events)}
	for _, e := range events {
		if e.Kind == history.Remade {
			r.reinitialized++
		}
	}
	return r
}

func (r report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n", r.table())
	history.Print(out, r.proofs)
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
	b.WriteString("| mode | replication | candidates |\n|---|---|---|\n| async | asynchronous | as above |\n| proxied | asynchronous | all connect through HAProxy, with `on-marked-down shutdown-sessions` |\n| sync | synchronous: `synchronous_mode: true` | as above |\n| guarded | synchronous: `synchronous_mode: true` | all have `WithSynchronousStandby`, and none has a shared session |\n\n")
	b.WriteString(r.table())
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
