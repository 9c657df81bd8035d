// Package shared acquires the locks of many elections on one connection.
package shared

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/session"
)

// A Shared session acquires any number of locks on one connection. One statement tries all
// that are asked for, once per retry interval, and at once when the session that holds most
// of them has ended. Losing the connection loses all locks.
type Shared struct {
	source *session.Source
	retry  time.Duration
	look   time.Duration         // between two looks whether that session has ended; 0 for none
	epoch  int64                 // of tokens
	offer  func(key int64) int64 // the key of the lock by which a leader offers its lock to this candidate
	ctx    context.Context       // the owner's: no attempts once it is done

	mu       sync.Mutex
	requests []*request
	taking   chan struct{} // held by the acquirer that takes a transferred lock
	hurried  chan struct{} // receives when a request must not wait for the next interval
	working  bool
	worked   chan struct{} // closed when the worker has returned
	now      *session.Session
	releases *releases // of now's locks
}

// New makes a session that connects with the first attempt. Attempts fail with the
// cause of ctx once that is done.
func New(ctx context.Context, source *session.Source, retry, look time.Duration, epoch int64, offer func(key int64) int64) *Shared {
	return &Shared{source: source, retry: retry, look: look, epoch: epoch, offer: offer, ctx: ctx, taking: make(chan struct{}, 1), hurried: make(chan struct{}, 1), worked: make(chan struct{})}
}

// Acquirer makes an acquirer of another lock on the session. No two may have the same key:
// the server would grant the lock to both. own is for a lock that another leader
// transfers, which needs a session of its own: succeed takes it there.
func (s *Shared) Acquirer(own *lock.Dedicated, succeed lock.Succeed) lock.Acquirer {
	return &sharing{Config: own.Config, shared: s, own: own, succeed: succeed}
}

// Close discards the connection. The context of the session is done, and none of its locks
// is in use any more.
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

// sharing is the acquirer of one lock on a shared session. Its attempts have no Next: the
// worker paces them.
type sharing struct {
	lock.Config
	shared  *Shared
	own     *lock.Dedicated
	succeed lock.Succeed
	again   bool // this campaign has tried before
}

func (h *sharing) Acquire(ctx context.Context, t lock.Try) lock.Attempt {
	r := &request{Config: h.Config, ctx: ctx, urgent: !h.again, led: t.Last == lock.Led, reply: make(chan reply)}
	h.again = true
	if err := h.shared.add(r); err != nil {
		return lock.Attempt{Err: err}
	}
	for woken := false; ; {
		select {
		case reply := <-r.reply:
			if !woken {
				t.Woken.Renew()
			}
			return h.attempt(ctx, reply)
		case <-t.Woken.Woken():
			t.Woken.Spend()
			woken = true
			h.again = h.shared.serveNow(r) // if that comes too late, the next one hurries
		case <-ctx.Done(): // the worker sees that too, and gives back what it may have been granted
			return lock.Attempt{Err: context.Cause(ctx)}
		}
	}
}

// attempt is what the reply means. A transferred lock is waited for on a session of its
// own: the shared one would keep all its other elections waiting. There is one at a time, since
// who leads many elections, a stranger perhaps, can offer all their locks at once.
func (h *sharing) attempt(ctx context.Context, r reply) (a lock.Attempt) {
	switch {
	case r.err != nil:
	case r.session != nil:
		a = lock.Attempt{Outcome: lock.Granted, Lock: lock.NewShared(h.Key, r.session, r.token, r.others)}
	case r.offered && h.takeTurn(ctx):
		ctx, stop := backoff.Detach(ctx) // as the session's own statements are
		a, r.err = h.own.OnChecked(ctx, func() (lock.Attempt, error) { return h.succeed(ctx, h.own, func() *session.Session { return nil }) })
		stop()
		<-h.shared.taking
	default:
		a = lock.Attempt{Outcome: lock.Busy, Holder: r.holder}
	}
	if r.err != nil {
		return lock.Fail(h.shared.source, r.err, 0)
	}
	if a.Outcome == lock.Granted {
		h.again = false
	}
	return a
}

// takeTurn reports whether it is this election's turn to take a transferred lock. If not, it has
// waited no longer than until the next batch.
func (h *sharing) takeTurn(ctx context.Context) bool {
	select {
	case h.shared.taking <- struct{}{}:
		return true
	case <-time.After(h.shared.retry):
	case <-ctx.Done():
	}
	return false
}

func (h *sharing) Close() { h.again = false }

// A request is one attempt that waits for the next batch.
type request struct {
	lock.Config
	ctx    context.Context
	urgent bool             // do not wait for the next interval
	led    bool             // this candidate was the last leader
	held   *session.Session // holds the lock, which waits at its barrier
	reply  chan reply

	reported bool // that the transactions it waits for cannot be terminated
}

func (r *request) isUrgent() bool    { return r.urgent }
func (r *request) isAtBarrier() bool { return r.held != nil }
func (r *request) wasLed() bool      { return r.led }
func (r *request) any() bool         { return true }

func keysOf(requests []*request) []int64 {
	var keys []int64
	for _, r := range requests {
		keys = append(keys, r.Key)
	}
	return keys
}

// A reply is the result of a request.
type reply struct {
	err     error
	session *session.Session // holds the lock; nil if another does
	others  *releases        // of its other locks
	token   int64
	holder  lock.Holder
	offered bool
}

func answerAll(requests []*request, with reply) {
	for _, r := range requests {
		r.answer(with)
	}
}

// answer answers a request, unless its campaign was cancelled meanwhile.
func (r *request) answer(with reply) (answered bool) {
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

// serveNow has a request served now, unless it is being served already.
func (s *Shared) serveNow(r *request) (inTime bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if inTime = slices.Contains(s.requests, r); inTime {
		r.urgent = true
		s.wake()
	}
	return inTime
}

// wake has the worker serve the requests that hurry.
func (s *Shared) wake() {
	select {
	case s.hurried <- struct{}{}:
	default:
	}
}

// LifeKey is the key of a shared session's life lock: a lock of two integers that the
// session holds until it ends.
func LifeKey(candidateID string, pid int32) int64 {
	return lockkey.OfText(fmt.Sprintf("pgelector life:%d:%s", pid, candidateID))
}
