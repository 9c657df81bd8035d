//go:build unix

// Package faults_test makes ten faults on real servers, and checks that docs/observing.md has the lines
// that the leader and its follower log. go -C e2e test ./faults -update writes them there.
package faults_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/sandbox"
	"github.com/pgelector/pgelector/elector"
)

// lease is short, since two faults last until it runs out, and long enough for a busy machine.
const lease = 10 * time.Second

const (
	page    = "../../docs/observing.md"
	runbook = "../../docs/runbook.md"
	begin   = "<!-- Written by `go -C e2e test ./faults -update`. -->\n"
	end     = "\n<!-- End of what it has written. -->"
)

var update = flag.Bool("update", false, "write the lines into "+page)

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) {
	if text := os.Getenv(candidateVariable); text != "" {
		if err := runCandidate(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil { // they mostly wait
		panic(err)
	}
	goleak.VerifyTestMain(shared.Around(m))
}

// A pair is a leader and its follower, which is the deputy.
type pair struct {
	*testing.T
	cluster          *pgcluster.Cluster
	proxy            *pgcluster.Proxy // of the leader, and of both if the server breaks
	election         string
	leader, follower process
	skip             [2]int // how many lines each had logged before the fault
}

// A fault is one row of the table.
type fault struct {
	name     string
	breaks   bool // the server: the fault gets one of its own
	alone    bool // in the table of the runbook alone
	leader   settings
	follower settings
	happens  func(p *pair)
}

var faults = []fault{
	{name: "`kill -9` of the leader", happens: func(p *pair) {
		p.leader.Signal(p.T, syscall.SIGKILL)
		p.followerLeads()
	}},
	{name: "the leader is frozen, and thawed", happens: func(p *pair) {
		p.leader.Signal(p.T, syscall.SIGSTOP)
		p.followerLeads()
		p.leader.Signal(p.T, syscall.SIGCONT)
		p.leaderFollows()
	}},
	{name: "its link is cut, and mended", happens: func(p *pair) {
		p.proxy.BlackHole()
		p.followerLeads()
		p.leader.logs(p.T, p.skip[0], "demoted")
		p.proxy.Heal()
		p.leaderFollows()
	}},
	{name: "its backend is terminated (`evict`)", leader: settings{AsksToCampaign: true}, happens: func(p *pair) {
		must.Check(p.T, p.cluster.Exec(p.Context(), "SELECT pg_terminate_backend($1)", p.leaderPID()))
		p.changesOver()
	}},
	{name: "the server is restarted", breaks: true, leader: settings{AsksToCampaign: true}, happens: func(p *pair) {
		p.outage(func() error { return p.cluster.Restart(p.Context(), pgcluster.Fast) })
		p.changesOver()
	}},
	{name: "the server crashes, and recovers", breaks: true, leader: settings{AsksToCampaign: true}, happens: func(p *pair) {
		pid := p.leaderPID()
		p.outage(func() error { return p.cluster.KillBackend(int(pid)) })
		p.changesOver()
	}},
	{name: "the server is away for a while", breaks: true, leader: settings{AsksToCampaign: true}, happens: func(p *pair) {
		must.Check(p.T, p.cluster.Shutdown(p.Context(), pgcluster.Fast))
		p.follower.logs(p.T, p.skip[1], "attempt failed")
		must.Check(p.T, p.cluster.Resume(p.Context()))
		p.changesOver()
	}},
	{name: "the follower's pool is full", follower: settings{Full: true}, happens: func(p *pair) {
		p.follower.logs(p.T, 0, "attempt failed")
		p.follower.Order(p.T, "free")
		p.follower.logs(p.T, 0, "attempts succeed again", "became deputy")
	}},
	{name: "a hook of the leader blocks", leader: settings{Blocks: true}, happens: func(p *pair) {
		p.leader.logs(p.T, 0, "hook does not return")
		p.leader.Order(p.T, "unblock")
		p.leader.logs(p.T, 0, "hook returned after all")
	}},
	{name: "`lead` hangs when it is asked to go", leader: settings{Hangs: true}, happens: func(p *pair) {
		asked := p.askToGo()
		p.leader.logs(p.T, p.skip[0], "work outlived its term")
		p.leader.Order(p.T, "return")
		must.Check(p.T, <-asked)
		p.followerLeads()
		p.leaderFollows()
	}},
	{name: "the leader's backend hangs", alone: true, leader: settings{AsksToCampaign: true}, happens: func(p *pair) {
		pid := int(p.leaderPID())
		must.Check(p.T, sandbox.Stop(pid))
		p.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		p.follower.logs(p.T, p.skip[1], "nobody can be elected")
		must.Check(p.T, syscall.Kill(pid, syscall.SIGCONT))
		p.changesOver()
	}},
	{name: "the deputy's pool is full", alone: true, follower: settings{Fills: true}, happens: func(p *pair) {
		p.follower.Order(p.T, "fill")
		p.follower.logs(p.T, p.skip[1], "pool is full")
		p.follower.Order(p.T, "free")
		p.follower.logs(p.T, p.skip[1], "wait for the pool is over")
	}},
}

func (p *pair) followerLeads() { p.follower.logs(p.T, p.skip[1], "elected") }
func (p *pair) leaderFollows() { p.leader.logs(p.T, p.skip[0], "leader changed", "became deputy") }

// outage has the fault last until the follower has noticed it, however soon the server is back.
func (p *pair) outage(happens func() error) {
	p.Helper()
	p.proxy.LeadTo(nil)
	must.Check(p.T, happens())
	p.follower.logs(p.T, p.skip[1], "attempt failed")
	p.proxy.LeadTo(p.cluster)
}

// changesOver has the follower lead, and then the leader follow.
func (p *pair) changesOver() {
	p.followerLeads()
	p.leader.logs(p.T, p.skip[0], "demoted")
	p.leader.Order(p.T, "campaign")
	p.leaderFollows()
}

func (p *pair) leaderPID() (pid int32) {
	p.Helper()
	conn, err := p.cluster.Conn(p.Context())
	must.Check(p.T, err)
	defer conn.Close(p.Context())
	must.Check(p.T, conn.QueryRow(p.Context(), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
		AND ((classid::bigint << 32) | objid::bigint) = $1`, elector.KeyFromName(p.election)).Scan(&pid))
	return pid
}

func (p *pair) askToGo() <-chan error {
	asked := make(chan error, 1)
	ctx, cancel := context.WithTimeout(p.Context(), must.Patience)
	p.Cleanup(cancel)
	pool, err := sql.Open("pgx", p.cluster.DSN())
	must.Check(p.T, err)
	p.Cleanup(func() { must.Expect(p.T, pool.Close()) })
	go func() {
		_, err := elector.RequestResign(ctx, pool, p.election)
		asked <- err
	}()
	return asked
}

// lines makes the fault, and returns what both have logged since.
func (f fault) lines(t *testing.T) (leader, follower string) {
	p := &pair{T: t, election: f.name}
	if f.breaks {
		cluster, err := pgcluster.Start(t.Context())
		must.Check(t, err)
		t.Cleanup(func() { must.Expect(t, cluster.Stop()) })
		p.cluster = cluster
	} else {
		p.cluster = shared.Get(t)
	}
	proxy, err := p.cluster.Proxy(t.Context())
	must.Check(t, err)
	p.proxy = proxy
	f.leader.DSN, f.leader.ID, f.leader.Election = proxy.DSN(), "web-1", f.name
	f.follower.DSN, f.follower.ID, f.follower.Election = p.cluster.DSN(), "web-2", f.name
	if f.breaks {
		f.follower.DSN = proxy.DSN()
	}
	p.leader = launch(t, f.leader)
	p.leader.logs(t, 0, "elected")
	p.skip[0] = len(p.leader.Lines())
	p.follower = launch(t, f.follower)
	if !f.follower.Full {
		p.follower.logs(t, 0, "leader changed", "became deputy")
		p.skip[1] = len(p.follower.Lines())
	}
	f.happens(p)
	return cell(p.leader.Lines()[p.skip[0]:]), cell(p.follower.Lines()[p.skip[1]:])
}

var (
	always   = regexp.MustCompile(`^time=\S+ level=| msg=| (election|candidate|key|token|op|pid)=("(\\.|[^"\\])*"|\S+)`)
	quoted   = regexp.MustCompile(`^"((?:\\.|[^"\\])*)"`)
	attempts = regexp.MustCompile(`(attempt failed.* error)=("(\\.|[^"\\])*"|\S+)`)
	texts    = regexp.MustCompile(`(error|why)="((?:\\.|[^"\\])*)"`)
	times    = regexp.MustCompile(`\b[0-9.]+ (s|ms)\b|\b([0-9.]+(h|m|s|ms|µs))+\b`)
	counts   = regexp.MustCompile(`(attempts?)=\d+`)
	late     = regexp.MustCompile(` late=\S+`)
)

// cell writes lines as a cell of the table, without what differs from run to run.
func cell(lines []string) string {
	var all []string
	for _, line := range lines {
		line = always.ReplaceAllStringFunc(line, func(found string) string {
			if found == " msg=" {
				return " "
			}
			return ""
		})
		if !strings.Contains(line, "stood still") { // else a timer of a busy machine was late
			line = late.ReplaceAllString(line, "")
		}
		level, rest, _ := strings.Cut(line, " ")
		line = level + " " + quoted.ReplaceAllString(rest, "$1")
		line = attempts.ReplaceAllString(line, "$1=…") // which one is the first differs
		line = texts.ReplaceAllStringFunc(line, func(found string) string {
			m := texts.FindStringSubmatch(found)
			parts := strings.SplitN(m[2], ": ", 3)
			switch {
			case len(parts) == 3 && strings.Contains(parts[1], "the lease is"):
				parts = parts[:2] // what the server has said, if that is known
			case len(parts) == 3:
				parts[2] = "…"
			}
			return fmt.Sprintf("%s=%q", m[1], strings.Join(parts, ": "))
		})
		line = counts.ReplaceAllString(times.ReplaceAllString(line, "…"), "$1=…")
		all = append(all, "`"+line+"`")
	}
	return strings.Join(all, "<br>")
}

// The page has the times and numbers as "…", and of errors the beginning. The runbook has the section of each line that may ask for
// action.
func TestThePageHasTheLinesThatTenFaultsWrite(t *testing.T) {
	cells := make([][2]string, len(faults))
	t.Run("faults", func(t *testing.T) {
		var mu sync.Mutex
		for i, f := range faults {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				leader, follower := f.lines(t)
				mu.Lock()
				defer mu.Unlock()
				cells[i] = [2]string{leader, follower}
			})
		}
	})
	if t.Failed() {
		return
	}
	var listed []fault
	var lines, sections []string
	for i, f := range faults {
		sections = append(sections, sectionsOf(cells[i][0])+" | "+sectionsOf(cells[i][1]))
		if !f.alone {
			listed, lines = append(listed, f), append(lines, cells[i][0]+" | "+cells[i][1])
		}
	}
	writes(t, page, "| fault | the leader, `web-1` | its follower, `web-2` |\n|---|---|---|\n"+rows(listed, lines))
	writes(t, runbook, "| fault | the leader's log | its follower's log |\n|---|---|---|\n"+rows(faults, sections))
}

// rows are those of a table. The same cells are one row, if their faults follow each other.
func rows(of []fault, cells []string) (table string) {
	for i := 0; i < len(of); {
		names, first := of[i].name, i
		for i++; i < len(of) && cells[i] == cells[first]; i++ {
			names += "; " + of[i].name
		}
		table += fmt.Sprintf("| %s | %s |\n", names, cells[first])
	}
	return table
}

var asking = regexp.MustCompile("`(?:WARN|ERROR) ([a-z ]+?)(?: \\w+=|`)")

// sectionsOf are the sections of the runbook for the lines of a cell that may ask for action. Each line is a heading there.
func sectionsOf(cell string) string {
	var links []string
	for _, m := range asking.FindAllStringSubmatch(cell, -1) {
		if link := fmt.Sprintf("[`%s`](#%s)", m[1], strings.ReplaceAll(m[1], " ", "-")); !slices.Contains(links, link) {
			links = append(links, link)
		}
	}
	if len(links) == 0 {
		return "nothing to do"
	}
	return strings.Join(links, ", ")
}

// writes compares a page with the table that was made, or writes that.
func writes(t *testing.T, page, table string) {
	t.Helper()
	text, err := os.ReadFile(page)
	must.Check(t, err)
	before, rest, _ := strings.Cut(string(text), begin)
	written, after, found := strings.Cut(rest, end)
	switch {
	case !found:
		t.Fatalf("%s has no place for the table", page)
	case *update:
		must.Check(t, os.WriteFile(page, []byte(before+begin+"\n"+table+end+after), 0o644))
	case strings.TrimPrefix(written, "\n") != table:
		t.Errorf("%s has\n%s\nbut these lines were written:\n%s\ngo -C e2e test ./faults -update", page, written, table)
	}
}
