package metrics

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// Standing says whether this process leads an election, or is the deputy.
type Standing struct {
	Election      string
	Leading       bool          // whether a candidate of this process leads
	Left          time.Duration // the rest of the term's validity; positive if and only if Leading
	Since         time.Time     // when the term began; zero unless Leading
	Deputy        bool          // whether a candidate of this process is the deputy
	InTransaction bool          // whether a candidate of this process is in transaction scope
	Polls         bool          // whether no candidate of this process ever becomes the deputy
}

// standings are the known elections.
type standings struct {
	mu        sync.Mutex
	elections map[string]*election
}

// election has the candidates of this process.
type election struct {
	terms    map[hooks.Origin]term // the current ones
	deputies map[hooks.Origin]bool // by the last attempt of each
	sits     bool                  // one of them takes a free seat
	polls    bool                  // one of them does not
	inside   bool                  // one of them is in transaction scope
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
	for _, name := range slices.Sorted(maps.Keys(s.elections)) {
		known := s.elections[name]
		of := Standing{Election: name, Deputy: len(known.deputies) > 0, InTransaction: known.inside, Polls: known.polls && !known.sits}
		for _, t := range known.terms {
			if left := t.left(now); left > of.Left {
				of.Leading, of.Left, of.Since = true, left, t.since
			}
		}
		all = append(all, of)
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
	s.election(election)
}

func (s *standings) began(ctx context.Context, e hooks.Elected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.election(e.Election).terms[e.Origin] = term{ctx: ctx, token: e.Token, since: e.At, deadline: e.Deadline}
}

// extended ignores a heartbeat that arrives after its term.
func (s *standings) extended(e hooks.Heartbeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	terms := s.election(e.Election).terms
	if t, ok := terms[e.Origin]; ok && t.token == e.Token {
		t.deadline = e.Deadline
		terms[e.Origin] = t
	}
}

func (s *standings) ended(e hooks.Demoted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.election(e.Election).terms, e.Origin)
}

func (s *standings) attempted(e hooks.Campaign) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.election(e.Election)
	known.sits, known.polls, known.inside = known.sits || !e.Polls, known.polls || e.Polls, known.inside || e.InTransaction
	if delete(known.deputies, e.Origin); e.Deputy {
		known.deputies[e.Origin] = true
	}
}

// election returns what is known of an election, and adds it if it is new.
func (s *standings) election(name string) *election {
	known := s.elections[name]
	if known == nil {
		known = &election{terms: map[hooks.Origin]term{}, deputies: map[hooks.Origin]bool{}}
		s.elections[name] = known
	}
	return known
}
