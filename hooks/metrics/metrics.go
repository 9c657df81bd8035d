// Package metrics measures an election for any monitoring system. Prometheus and
// OpenTelemetry have adapters in packages beside it. For another system implement
// [Sink]:
//
//	hook := metrics.New(statsdSink{client})
//	e, err := elector.New(pool, "orders", elector.WithHooks(hook))
//
// # Counters and gauges
//
// The Sink feeds counters and histograms. Whether this process leads is not an event: a
// term that nobody extends ends silently, and a frozen process learns of it late. So call
// [Hook.Standings] each time a gauge is read or sent. It computes the answer from the
// clocks, as Elector.IsLeader does. Whether it is the deputy is as of the last attempt.
//
// An elector that is closed, or whose session is, stands for no election any more. One whose
// Run has ended does: nobody leads if all have.
//
// # Labels
//
// The labels are the election and closed sets (hooks.Reason, hooks.Op, hooks.Outcome).
// The candidate id is no label: by default each process has a new one, so every restart
// would begin new time series. The collector identifies the process, for instance by
// Prometheus's label instance. Candidates of one process and one election are counted
// together.
//
// # Hooks that block
//
// No other hook is called until one returns, and so no event is counted. A leader still
// seems to lead, if this hook was told of its term: register it before a hook that works in OnElected.
package metrics

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pgelector/pgelector/hooks"
)

// Sink receives the measurements. One elector calls its methods one at a time and in order;
// electors that share a sink may call it concurrently. The methods must be quick: the next
// event waits for them, and TermEnded delays the release of the lock. ctx carries the
// values of the campaign's context.
type Sink interface {
	// TermBegan is called when a term has begun.
	TermBegan(ctx context.Context, election string)
	// TermEnded is called when a term has ended, and its work has returned.
	TermEnded(ctx context.Context, election string, reason hooks.Reason, held time.Duration)
	// HeartbeatAnswered is called after a heartbeat; took is the round trip.
	HeartbeatAnswered(ctx context.Context, election string, took time.Duration)
	// AttemptMade is called after each attempt to be elected.
	AttemptMade(ctx context.Context, election string, outcome hooks.Outcome, took time.Duration)
	// FailureSeen is called for every failure. The election is "" if the connection of an
	// elector.Session failed.
	FailureSeen(ctx context.Context, election string, op hooks.Op)
}

// Hook feeds a [Sink]. It is made by [New]. Any number of electors may share one Hook,
// also concurrently.
type Hook struct {
	standings
	sink Sink
}

var (
	_ hooks.ElectedHook   = (*Hook)(nil)
	_ hooks.DemotedHook   = (*Hook)(nil)
	_ hooks.ErrorHook     = (*Hook)(nil)
	_ hooks.HeartbeatHook = (*Hook)(nil)
	_ hooks.CampaignHook  = (*Hook)(nil)
	_ hooks.ClosedHook    = (*Hook)(nil)
)

// New returns a hook that feeds sink. A nil sink is for those who need only
// [Hook.Standings].
func New(sink Sink) *Hook {
	if sink == nil {
		sink = noSink{}
	}
	return &Hook{standings: standings{elections: map[string]election{}}, sink: sink}
}

// OnElected records the new term and feeds the sink.
func (h *Hook) OnElected(ctx context.Context, e hooks.Elected) {
	h.began(ctx, e)
	h.sink.TermBegan(context.WithoutCancel(ctx), e.Election)
}

// OnDemoted removes the term and feeds the sink.
func (h *Hook) OnDemoted(ctx context.Context, e hooks.Demoted) {
	h.ended(e)
	h.sink.TermEnded(ctx, e.Election, e.Reason, e.Held)
}

// OnHeartbeat extends the term and feeds the sink.
func (h *Hook) OnHeartbeat(ctx context.Context, e hooks.Heartbeat) {
	h.extended(e)
	h.sink.HeartbeatAnswered(ctx, e.Election, e.Took)
}

// OnCampaign records whether the candidate is the deputy, and feeds the sink.
func (h *Hook) OnCampaign(ctx context.Context, e hooks.Campaign) {
	h.attempted(e)
	h.sink.AttemptMade(ctx, e.Election, e.Outcome, e.Took)
}

// OnError feeds the sink.
func (h *Hook) OnError(ctx context.Context, e hooks.Failure) {
	h.failed(e)
	h.sink.FailureSeen(ctx, e.Election, e.Op)
}

// OnClosed removes the candidate.
func (h *Hook) OnClosed(_ context.Context, e hooks.Closed) { h.closed(e) }

type noSink struct{}

func (noSink) TermBegan(context.Context, string)                                 {}
func (noSink) TermEnded(context.Context, string, hooks.Reason, time.Duration)    {}
func (noSink) HeartbeatAnswered(context.Context, string, time.Duration)          {}
func (noSink) AttemptMade(context.Context, string, hooks.Outcome, time.Duration) {}
func (noSink) FailureSeen(context.Context, string, hooks.Op)                     {}

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
	elections map[string]election
}

// election has the candidates of this process, of which there is at least one.
type election map[hooks.Origin]*candidate

// candidate is an elector that is not closed.
type candidate struct {
	term   *term // the current one; nil if there is none
	deputy bool  // by the last attempt
	sits   bool  // it takes a free seat
	polls  bool  // it does not
	inside bool  // it has been in transaction scope
}

// term is a candidate's current term. The elector cancels its context when it learns that
// the term has ended. The deadline may pass earlier.
type term struct {
	ctx      context.Context
	token    int64
	since    time.Time
	deadline time.Time
}

// Standings returns the standing in each election of which the hook has seen an event, and
// in which not all candidates are closed, by the clocks at the time of the call, sorted by
// name. If this process has several candidates in an election, the one that leads counts.
func (s *standings) Standings() []Standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	all := make([]Standing, 0, len(s.elections))
	for _, name := range slices.Sorted(maps.Keys(s.elections)) {
		of, sits := Standing{Election: name}, false
		for _, c := range s.elections[name] {
			of.Deputy, of.InTransaction = of.Deputy || c.deputy, of.InTransaction || c.inside
			of.Polls, sits = of.Polls || c.polls, sits || c.sits
			if c.term == nil {
				continue
			}
			if left := c.term.left(now); left > of.Left {
				of.Leading, of.Left, of.Since = true, left, c.term.since
			}
		}
		of.Polls = of.Polls && !sits
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
	deadline := t.deadline
	if current, known := hooks.Deadline(t.ctx); known { // also while a hook keeps the events of heartbeats from this one
		deadline = current
	}
	return min(deadline.Sub(now), deadline.Round(0).Sub(now.Round(0)))
}

func (s *standings) began(ctx context.Context, e hooks.Elected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.candidate(e.Origin).term = &term{ctx: ctx, token: e.Token, since: e.At, deadline: e.Deadline}
}

// extended ignores a heartbeat that arrives after its term.
func (s *standings) extended(e hooks.Heartbeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.candidate(e.Origin).term; t != nil && t.token == e.Token {
		t.deadline = e.Deadline
	}
}

// ended ignores the end of a term that is not the current one: another elector with the same
// candidate id may have begun one meanwhile.
func (s *standings) ended(e hooks.Demoted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.candidate(e.Origin); c.term != nil && c.term.token == e.Token {
		c.term = nil
	}
}

func (s *standings) attempted(e hooks.Campaign) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.candidate(e.Origin)
	c.deputy, c.sits, c.polls, c.inside = e.Deputy, c.sits || !e.Polls, c.polls || e.Polls, c.inside || e.InTransaction
}

// failed adds a candidate. A failure of a shared session's connection names no election, and a hook
// may fail in OnClosed.
func (s *standings) failed(e hooks.Failure) {
	if e.Election == "" || e.Op == hooks.OpHook {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.candidate(e.Origin)
}

// closed removes a candidate, unless it leads: then an elector with the same candidate id does, since
// the closed one's terms have ended.
func (s *standings) closed(e hooks.Closed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.elections[e.Election][e.Origin]; c != nil && c.term != nil {
		return
	}
	delete(s.elections[e.Election], e.Origin)
	if len(s.elections[e.Election]) == 0 {
		delete(s.elections, e.Election)
	}
}

// Label returns an election's name as a label, or an attribute: one that is not UTF-8, which
// systems of metrics and traces refuse, is quoted as by strconv.Quote.
func Label(election string) string {
	if utf8.ValidString(election) {
		return election
	}
	return strconv.Quote(election)
}

// candidate returns what is known of a candidate, and adds it if it is new.
func (s *standings) candidate(who hooks.Origin) *candidate {
	of := s.elections[who.Election]
	if of == nil {
		of = election{}
		s.elections[who.Election] = of
	}
	c := of[who]
	if c == nil {
		c = &candidate{}
		of[who] = c
	}
	return c
}
