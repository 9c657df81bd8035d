//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
)

// report is the result of a run. It is small enough to commit.
type report struct {
	Seed   uint64
	Struck map[string]int // how often each fault was injected
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
	history.Print(out, r.Proofs)
}

func (r report) failed() error { return history.FailedProofs(r.Proofs) }

func (r report) write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// recheck checks a history that an earlier run kept.
func recheck(c config) error {
	events, err := history.Load(c.judge)
	if err != nil {
		return err
	}
	return c.report(judge(c.seed, events))
}

// report prints the result of a run, and writes it to a file if the flags ask for that.
func (c config) report(r report) (err error) {
	r.print(os.Stdout)
	if c.summary != "" {
		err = r.write(c.summary)
	}
	return errors.Join(err, r.failed())
}

// prove checks each election (no two led at once, tokens rose, hooks alternated), the first
// election (somebody led again after each fault) and each register (its writes are
// linearizable).
func prove(events []history.Event) []history.Proof {
	first := fleet.Of("", events)
	proofs := []history.Proof{history.Complete(events)}
	for _, election := range []string{"", fleet.SecondElection} {
		its := fleet.Of(election, events)
		for _, p := range []history.Proof{history.OneLeader(its, fleet.Grace), history.TokensRise(its), history.HooksAlternate(its)} {
			if election != "" {
				p.Claim += " (the second election)"
			}
			proofs = append(proofs, p)
		}
	}
	return append(proofs, history.ThawedKnow(first), history.Recovers(first, fleet.Bound), fleet.Linearizable(first))
}

// leftovers checks, after every candidate has left, that the server has no session and no lock
// of a candidate.
func leftovers(ctx context.Context, s *stage) (history.Proof, error) {
	p := history.Proof{Claim: "nothing was left behind", Checked: "every process had ended; the server had no advisory lock, and no session of a candidate"}
	for _, b := range s.bouncers { // they keep connections
		if err := b.Stop(); err != nil {
			return p, err
		}
	}
	conn, err := s.primary.Conn(ctx)
	if err != nil {
		return p, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var sessions, locks int
	for deadline := time.Now().Add(fleet.Patience); ; time.Sleep(20 * time.Millisecond) {
		err := conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_stat_activity WHERE usename = $1),
			(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')`, fleet.Role).Scan(&sessions, &locks)
		if err != nil {
			return p, err
		}
		if sessions == 0 && locks == 0 {
			return p, nil
		}
		if time.Now().After(deadline) {
			p.Violations = append(p.Violations, fmt.Sprintf("%d sessions and %d locks are left", sessions, locks))
			return p, nil
		}
	}
}
