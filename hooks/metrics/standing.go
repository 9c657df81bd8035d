package metrics

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// Standing says whether this process leads an election.
type Standing struct {
	Election string
	Leading  bool          // whether a candidate of this process leads
	Left     time.Duration // the rest of the term's validity; positive if and only if Leading
	Since    time.Time     // when the term began; zero unless Leading
}

// standings are the known elections and their current terms.
type standings struct {
	mu        sync.Mutex
	elections map[string]map[hooks.Origin]term
}

// term is a candidate's current term. The elector cancels its context when it learns that
// the term has ended. The deadline may pass earlier.
type term struct {
	ctx      context.Context
	token    int64
	since    time.Time
	deadline time.Time
}

// Standings returns the standing in each election of which the hook has seen an event, by
// the clocks at the time of the call, sorted by name. If this process has several
// candidates in an election, the one that leads counts.
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

// left returns the rest of the validity. The monotonic clock may stop while the machine
// sleeps, and the wall clock may be set, so the smaller difference counts, as in the
// elector.
func (t term) left(now time.Time) time.Duration {
	if t.ctx.Err() != nil {
		return 0
	}
	return min(t.deadline.Sub(now), t.deadline.Round(0).Sub(now.Round(0)))
}

// saw adds an election. A failure of a shared session's connection names none.
func (s *standings) saw(election string) {
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

// extended ignores a heartbeat that arrives after its term.
func (s *standings) extended(e hooks.Heartbeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	terms := s.terms(e.Election)
	if t, ok := terms[e.Origin]; ok && t.token == e.Token {
		t.deadline = e.Deadline
		terms[e.Origin] = t
	}
}

func (s *standings) ended(e hooks.Demoted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.terms(e.Election), e.Origin)
}

// terms returns the current terms of an election, and adds the election if it is new.
func (s *standings) terms(election string) map[hooks.Origin]term {
	terms := s.elections[election]
	if terms == nil {
		terms = map[hooks.Origin]term{}
		s.elections[election] = terms
	}
	return terms
}
