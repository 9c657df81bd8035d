package metrics

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// Standing is how this process stands in an election, at the time of the
// question.
type Standing struct {
	Election string
	Leading  bool          // a candidate of this process leads
	Left     time.Duration // of the term's validity; more than 0 exactly if Leading
	Since    time.Time     // when the term began; zero unless Leading
}

// standings are the elections that were seen, and the terms that go on in them.
type standings struct {
	mu        sync.Mutex
	elections map[string]map[hooks.Origin]term
}

// term is what is known of a candidate's term. Its context ends when the
// elector knows that it has ended, its deadline passes without anybody knowing.
type term struct {
	ctx      context.Context
	token    int64
	since    time.Time
	deadline time.Time
}

// Standings returns how this process stands in each election of which the hook
// has seen an event, sorted by name. Of several candidates of this process in
// one election, the one that leads counts.
func (s *standings) Standings() []Standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	all := make([]Standing, 0, len(s.elections))
	for _, election := range slices.Sorted(maps.Keys(s.elections)) {
		best := Standing{Election: election}
		for _, t := range s.elections[election] {
			if left := t.left(now); left > best.Left {
				best = Standing{Election: election, Leading: true, Left: left, Since: t.since}
			}
		}
		all = append(all, best)
	}
	return all
}

// left is how much of the validity is left. A process's monotonic clock may
// stand still while its machine sleeps, and its wall clock may be set, so the
// less favourable of the two counts, as it does for the elector.
func (t term) left(now time.Time) time.Duration {
	if t.ctx.Err() != nil {
		return 0
	}
	return min(t.deadline.Sub(now), t.deadline.Round(0).Sub(now.Round(0)))
}

// met knows the election from now on. A failure of a shared session's connection
// is of none.
func (s *standings) met(election string) {
	if election == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.terms(election)
}

func (s *standings) began(ctx context.Context, e hooks.Elected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.terms(e.Election)[e.Origin] = term{ctx: ctx, token: e.Token, since: e.At, deadline: e.Deadline}
}

// extended ignores a heartbeat that is told after its term.
func (s *standings) extended(e hooks.Heartbeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	terms := s.terms(e.Election)
	if t, goesOn := terms[e.Origin]; goesOn && t.token == e.Token {
		t.deadline = e.Deadline
		terms[e.Origin] = t
	}
}

func (s *standings) ended(e hooks.Demoted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.terms(e.Election), e.Origin)
}

// terms are the terms that go on in an election, which is known from now on.
func (s *standings) terms(election string) map[hooks.Origin]term {
	terms := s.elections[election]
	if terms == nil {
		terms = map[hooks.Origin]term{}
		s.elections[election] = terms
	}
	return terms
}
