package elector

import (
	"context"
	"slices"
	"time"

	"github.com/pgelector/pgelector/internal/session"
)

// A sharer is the source of an elector on a shared session.
type sharer struct {
	session *Session
	e       *Elector
	retry   bool             // this campaign has tried before
	own     *session.Session // of a term that was left to this candidate as an heir
}

func (h *sharer) try(ctx context.Context) (session.Grant, error) {
	w := &wish{ctx: ctx, e: h.e, fresh: !h.retry, led: h.e.standing == led, answer: make(chan verdict)}
	h.retry = true
	if err := h.session.want(w); err != nil {
		return session.Grant{}, err
	}
	for hurried := false; ; {
		select {
		case v := <-w.answer:
			if !hurried {
				h.e.wakeUps.renew()
			}
			if v.Called {
				return h.answer(ctx)
			}
			return v.Grant, v.err
		case <-h.e.wakeUps.woken():
			h.e.wakeUps.spend()
			hurried = true
			h.retry = h.session.hurry(w) // if that comes too late, the next one is fresh
		case <-ctx.Done(): // the worker sees that too, and gives back what it may have been granted
			return session.Grant{}, context.Cause(ctx)
		}
	}
}

// answer waits in the server's queue as an heir does. The shared session cannot: it
// would keep all its other elections waiting. So that one term has a session of its own.
func (h *sharer) answer(ctx context.Context) (session.Grant, error) {
	if err := h.session.enter(); err != nil {
		return session.Grant{}, err
	}
	grant, err := h.e.answer(ctx, session.NewServer(h.e.pool, h.e.ofServer(h.e.beat, h.e.report)))
	if h.own = grant.Session; h.own == nil {
		h.session.terms.Done()
	}
	return grant, err
}

// enter counts a term that the worker knows nothing of.
func (s *Session) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	s.terms.Add(1)
	return nil
}

// hurry has a wish served now, unless it is being served already.
func (s *Session) hurry(w *wish) (inTime bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if inTime = slices.Contains(s.wishes, w); inTime {
		w.fresh = true
		s.wake()
	}
	return inTime
}

// want queues a wish and sees to it that somebody works.
func (s *Session) want(w *wish) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	s.wishes = append(s.wishes, w)
	if !s.working {
		s.working = true
		go (&worker{Session: s}).work()
	}
	if w.fresh {
		s.wake()
	}
	return nil
}

// wake has the worker serve the wishes that are fresh.
func (s *Session) wake() {
	select {
	case s.fresh <- struct{}{}:
	default:
	}
}

// pause is nothing: the next batch is paced by the worker.
func (h *sharer) pause() time.Duration   { return 0 }
func (h *sharer) rest()                  { h.retry = false }
func (h *sharer) refuses(err error) bool { return h.session.server.Refuses(err) }
func (h *sharer) distrust()              {}

// leave keeps the session for the others: if the lock is in doubt, it has ended.
func (h *sharer) leave(s *session.Session, _ error) {
	h.retry = false
	if s == h.own {
		s.Close()
	}
}

// over may be what Session.Close waits for.
func (h *sharer) over() { h.session.terms.Done() }
