// Package shared lets many elections share one connection.
package shared

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/handover"
)

// A Shared session acquires any number of locks on one connection. One statement tries all
// locks that are asked for: once per retry interval, and at once when the session that holds
// most of these locks has ended. If the connection is lost, all locks are lost.
type Shared struct {
	source *election.Source
	retry  time.Duration
	look   time.Duration   // between two looks whether the session that holds most locks has ended; 0 for none
	ctx    context.Context // the owner's: no attempts once it is done

	mu       sync.Mutex
	requests []*request
	taking   chan struct{} // held by the acquirer that takes a transferred lock
	hurried  chan struct{} // receives when a request must not wait for the next interval
	working  bool
	worked   chan struct{} // closed when the worker has returned

	now *election.Session // the worker's, until it has returned; nil before the first batch
}

// New makes a session that connects with the first attempt. Attempts fail with the cause of ctx once ctx is done.
func New(ctx context.Context, retry, look time.Duration) *Shared {
	return &Shared{retry: retry, look: look, ctx: ctx, taking: make(chan struct{}, 1), hurried: make(chan struct{}, 1), worked: make(chan struct{})}
}

// On sets the source of the connection, whose Statements are those of this package.
func (s *Shared) On(source *election.Source) { s.source = source }

// Close closes the connection. The context of the session is done, and none of its locks is in use any more.
func (s *Shared) Close() {
	s.mu.Lock()
	working := s.working
	s.mu.Unlock()
	if working {
		<-s.worked
	}
	if s.now != nil {
		s.now.Close()
	}
}

// A Waker may make the worker serve a request before its time.
type Waker interface {
	// Woken receives when the Waker does so; the receiver then calls Spend.
	Woken() <-chan struct{}
	Spend()
	// Renew allows more wake-ups: a regular batch has served the request.
	Renew()
}

// An Acquirer serves one election. Its attempts have no Next: the worker paces them. No two acquirers of a session may have the
// same key: the server would grant the lock to both.
type Acquirer struct {
	Shared *Shared
	Name   string             // of the election, for reports
	Own    *election.Election // for a lock that another leader transfers, which needs a session of its own
	Waker  func() Waker       // of the campaign that goes on

	again bool // this campaign has tried before
	led   bool // by the last answer, this candidate led
}

// Acquire waits for the result of the next batch.
func (h *Acquirer) Acquire(ctx context.Context, e *election.Election) election.Attempt {
	r := &request{want: e.Want(), name: h.Name, ctx: ctx, urgent: !h.again, led: h.led, reply: make(chan election.Attempt)}
	h.again = true
	if err := h.Shared.add(r); err != nil {
		return election.Attempt{Err: err, Paced: true}
	}
	waker := h.Waker()
	for woken := false; ; {
		select {
		case a := <-r.reply:
			if !woken {
				waker.Renew()
			}
			return h.attempt(ctx, a)
		case <-waker.Woken():
			waker.Spend()
			woken = true
			h.again = h.Shared.serveNow(r) // if that comes too late, the next one hurries
		case <-ctx.Done(): // the worker sees that too, and gives back what it may have been granted
			return election.Attempt{Err: context.Cause(ctx), Paced: true}
		}
	}
}

// attempt returns what the reply means. It waits for a transferred lock on a session of its own:
// a wait on the shared session would delay all other elections. One transfer goes on at a time,
// because a leader of many elections, perhaps a stranger, can offer all their locks at once.
func (h *Acquirer) attempt(ctx context.Context, a election.Attempt) election.Attempt {
	if a.Outcome == election.Busy && a.Named {
		a.Named = false
		if h.takeTurn(ctx) {
			own := h.Own.Source()
			got, err := handover.Succeed(ctx, h.Own, own.CandidateID, false, func() (*election.Session, error) { return own.Lend(ctx) })
			if err != nil {
				got = h.Shared.source.Fail(err) // which has passed a check, and has reached a primary: the own one may have done neither
			}
			<-h.Shared.taking
			if got.Outcome != election.Busy {
				a = got
			}
		}
	}
	a.Paced = a.Paced || a.Outcome == election.Busy // the next batch comes in time
	if _, later := errors.AsType[election.Later](a.Err); later {
		a.Paced = false
	}
	switch a.Outcome {
	case election.Granted:
		h.again, h.led = false, true
	case election.Busy:
		h.led = false
	}
	return a
}

// takeTurn reports whether it is this election's turn to take a transferred lock. If not, it has
// waited no longer than until the next batch.
func (h *Acquirer) takeTurn(ctx context.Context) bool {
	select {
	case h.Shared.taking <- struct{}{}:
		return true
	case <-time.After(h.Shared.retry):
	case <-ctx.Done():
	}
	return false
}

func (h *Acquirer) Close() { h.again = false }

// A request is one attempt that waits for the next batch.
type request struct {
	want   election.Want
	name   string
	ctx    context.Context
	urgent bool           // do not wait for the next interval
	led    bool           // this candidate was the last leader
	lock   *election.Lock // waits at its barrier; nil before it was granted
	reply  chan election.Attempt

	reported bool // that the transactions it waits for cannot be terminated
}

func (r *request) isUrgent() bool    { return r.urgent }
func (r *request) isAtBarrier() bool { return r.lock != nil }
func (r *request) wasLed() bool      { return r.led }
func (r *request) any() bool         { return true }

// holds reports whether the request's lock is on that session.
func (r *request) holds(s *election.Session) bool { return r.lock != nil && r.lock.Session() == s }

func keysOf(requests []*request) []int64 {
	var keys []int64
	for _, r := range requests {
		keys = append(keys, r.want.Key)
	}
	return keys
}

// answer answers a request, unless its campaign was cancelled meanwhile.
func (r *request) answer(with election.Attempt) (answered bool) {
	select {
	case r.reply <- with:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// add queues a request and sees to it that a worker runs.
func (s *Shared) add(r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	s.requests = append(s.requests, r)
	if !s.working {
		s.working = true
		s.startWorker()
	}
	if r.urgent {
		s.wake()
	}
	return nil
}

// serveNow makes the worker serve a request now, unless it is serving the request already.
func (s *Shared) serveNow(r *request) (inTime bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if inTime = slices.Contains(s.requests, r); inTime {
		r.urgent = true
		s.wake()
	}
	return inTime
}

// wake makes the worker serve the urgent requests.
func (s *Shared) wake() {
	select {
	case s.hurried <- struct{}{}:
	default:
	}
}

// Source is the source of the connection.
func (s *Shared) Source() *election.Source { return s.source }
