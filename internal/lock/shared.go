package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/session"
)

// A Shared session acquires any number of locks on one connection. One statement tries all
// that are asked for, once per retry interval. Losing the connection loses all locks.
type Shared struct {
	server *session.Server
	retry  time.Duration
	epoch  int64 // of tokens
	report func(context.Context, hooks.Failure)
	ctx    context.Context // the owner's: no attempts once it is done

	mu       sync.Mutex
	requests []*request
	hurried  chan struct{} // tells the worker that a request must not wait for the next interval
	working  bool
	worked   chan struct{} // closed when the worker has returned
	now      *session.Session
}

// NewShared makes a session that connects with the first attempt. Attempts fail with the
// cause of ctx once that is done.
func NewShared(ctx context.Context, server *session.Server, retry time.Duration, epoch int64, report func(context.Context, hooks.Failure)) *Shared {
	return &Shared{server: server, retry: retry, epoch: epoch, report: report, ctx: ctx,
		hurried: make(chan struct{}, 1), worked: make(chan struct{})}
}

// Acquirer makes an acquirer of another lock on the session. No two may have the same key:
// the server would grant the lock to both. A lock that another leader transfers needs a
// session of its own: that is made by own.
func (s *Shared) Acquirer(c Config, own *session.Server) Acquirer {
	return &sharing{Config: c, shared: s, own: own}
}

// Close discards the connection. The context of the session is done, and no lock of it is
// in use any more.
func (s *Shared) Close() {
	s.mu.Lock()
	working := s.working
	s.working = true
	s.mu.Unlock()
	if working {
		<-s.worked
	}
	if s.now != nil {
		s.now.Close()
	}
}

// sharing is the acquirer of one lock on a shared session.
type sharing struct {
	Config
	shared *Shared
	own    *session.Server
	again  bool // this campaign has tried before
}

func (h *sharing) Acquire(ctx context.Context, t Try) (Attempt, error) {
	r := &request{Config: h.Config, ctx: ctx, hurry: !h.again, led: t.Last == Led, reply: make(chan reply)}
	h.again = true
	if err := h.shared.add(r); err != nil {
		return Attempt{}, err
	}
	for woken := false; ; {
		select {
		case reply := <-r.reply:
			if !woken {
				t.WakeUps.Renew()
			}
			if reply.Called {
				return h.answer(ctx)
			}
			return h.attempt(reply.Grant, true, reply.err), reply.err
		case <-t.WakeUps.Woken():
			t.WakeUps.Spend()
			woken = true
			h.again = h.shared.hurry(r) // if that comes too late, the next one hurries
		case <-ctx.Done(): // the worker sees that too, and gives back what it may have been granted
			return Attempt{}, context.Cause(ctx)
		}
	}
}

// attempt has no Next: the worker paces the attempts.
func (h *sharing) attempt(g session.Grant, shared bool, err error) Attempt {
	if g.Session == nil {
		return Attempt{Holder: g.Leader, Refused: h.shared.server.Refuses(err)}
	}
	h.again = false
	lock := newLock(h.Key, g)
	lock.shared = shared
	return Attempt{Lock: lock}
}

// answer waits in the server's queue as a successor does. The shared session cannot: it
// would keep all its other elections waiting. So that one lock has a session of its own.
func (h *sharing) answer(ctx context.Context) (Attempt, error) {
	grant, err := answer(ctx, h.own, h.Config)
	return h.attempt(grant, false, err), err
}

func (h *sharing) Close() { h.again = false }

// A request is one attempt that waits for the next batch.
type request struct {
	Config
	ctx   context.Context
	hurry bool             // do not wait for the next interval
	led   bool             // this candidate was the last leader
	held  *session.Session // on which the lock is granted, while a fenced transaction of the last term goes on
	reply chan reply

	reported bool // that the transactions it waits for cannot be ended
}

func (r *request) hurries() bool     { return r.hurry }
func (r *request) isAtBarrier() bool { return r.held != nil }
func (r *request) wasLed() bool      { return r.led }
func (r *request) any() bool         { return true }

// A reply is what came of a request.
type reply struct {
	session.Grant
	err error
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
		go (&worker{Shared: s}).work()
	}
	if r.hurry {
		s.wake()
	}
	return nil
}

// hurry has a request served now, unless it is being served already.
func (s *Shared) hurry(r *request) (inTime bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if inTime = slices.Contains(s.requests, r); inTime {
		r.hurry = true
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
