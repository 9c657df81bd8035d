package roster

import (
	"context"
	"iter"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// Leader is who leads an election, and what it published.
type Leader struct {
	elector.Leader
	Published Candidate // zero if it has published nothing
}

// Observe is the elector's Observe, and carries what the leader published: its version, its
// metadata and its health at that time. It yields nothing when only those change. If they
// cannot be read, it yields the leader together with the error.
func (r *Roster) Observe(ctx context.Context, e *elector.Elector) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		for leader, err := range e.Observe(ctx) {
			l := Leader{Leader: leader}
			if err == nil && leader.PID != 0 {
				l.Published, err = r.published(ctx, e.Key(), leader.CandidateID)
			}
			if ctx.Err() != nil || !yield(l, err) {
				return
			}
		}
	}
}

// A candidate that has just begun may be elected before it has published.
const (
	publishedLooks = 4
	publishedEvery = 100 * time.Millisecond
)

func (r *Roster) published(ctx context.Context, key int64, id string) (Candidate, error) {
	for look := 1; ; look++ {
		all, err := r.Candidates(ctx, key)
		if err != nil {
			return Candidate{}, err
		}
		for _, c := range all {
			if c.ID == id && c.State == Live {
				return c, nil
			}
		}
		if look == publishedLooks {
			return Candidate{}, nil
		}
		select {
		case <-time.After(publishedEvery):
		case <-ctx.Done():
			return Candidate{}, ctx.Err()
		}
	}
}
