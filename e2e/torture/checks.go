//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
)

// prove holds a history to the promise: of each election, that no two led at
// once, that tokens rose, and that hooks alternated; of the first one, that
// somebody led again after each fault; of each register, that it was one.
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
	return append(proofs, history.ThawedKnow(first), history.Recovers(first, bound), fleet.Linearizable(first))
}

// leftovers checks, when every candidate has left, that no session of theirs is
// left, and no lock.
func leftovers(ctx context.Context, s *stage) (history.Proof, error) {
	p := history.Proof{Claim: "nothing was left behind", Checked: "every process had ended; the server had no advisory lock, and no session of a candidate"}
	if s.bouncer != nil { // which keeps connections of its own
		if err := s.bouncer.Stop(); err != nil {
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
