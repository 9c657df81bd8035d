package elector

import (
	"slices"
	"time"

	"github.com/pgelector/pgelector/internal/pace"
	"github.com/pgelector/pgelector/internal/session"
)

const (
	gathering = 5 * time.Millisecond  // new campaigns that begin together make one batch
	atBarrier = 50 * time.Millisecond // between two looks whether a barrier is passed
)

// A worker serves the wishes of a shared session, in batches. It is one
// goroutine, from the first wish until the session is closed.
type worker struct {
	*Session
	now  *session.Session // nil before the first batch, and once lost
	away outage           // of the server
	led  bool             // whether one of its elections was led here when that began
}

func (w *worker) work() {
	defer close(w.worked)
	due := time.NewTimer(pace.Jitter(w.config.retry))
	for w.ctx.Err() == nil {
		select {
		case <-w.ctx.Done():
		case <-w.fresh:
			if pace.Sleep(w.ctx, gathering) {
				w.serve((*wish).isFresh)
			}
			if w.hurries() {
				due.Reset(w.pause())
			}
		case <-w.barrier():
			w.serve((*wish).isHeld)
		case <-due.C:
			w.serve((*wish).any)
			due.Reset(w.pause())
		}
	}
	w.terms.Wait()
	if w.now != nil {
		w.now.Close()
	}
}

// barrier is when to look again whether a barrier is passed; never, if nobody waits at one.
func (w *worker) barrier() <-chan time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(w.wishes, (*wish).isHeld) {
		return nil
	}
	return time.After(atBarrier)
}

// collect takes the wishes to be served now, and all whose campaign was cancelled.
func (w *worker) collect(which func(*wish) bool) (taken, cancelled []*wish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var kept []*wish
	for _, wish := range w.wishes {
		switch {
		case wish.ctx.Err() != nil:
			cancelled = append(cancelled, wish)
		case which(wish):
			taken = append(taken, wish)
		default:
			kept = append(kept, wish)
		}
	}
	w.wishes = kept
	return taken, cancelled
}

// serve makes one batch of attempts.
func (w *worker) serve(which func(*wish) bool) {
	wishes, cancelled := w.collect(which)
	for _, wish := range cancelled {
		w.giveBack(wish) // before the same lock is asked for again
	}
	if len(wishes) == 0 {
		return
	}
	if err := w.attempt(wishes); err == nil {
		w.away, w.led = outage{}, false
	} else if w.away.failed(w.config.backoff); !w.led {
		w.led = slices.ContainsFunc(wishes, (*wish).hasLed)
	}
}

// attempt tries all, verifies all, and passes all barriers. It returns an error if the
// server could not be asked.
func (w *worker) attempt(wishes []*wish) error {
	if err := w.connect(); err != nil {
		w.tellAll(wishes, verdict{err: err})
		return err
	}
	var ask, have []int64
	for _, wish := range wishes {
		if wish.holds == w.now {
			have = append(have, wish.e.key)
		} else { // or it was lost with its session
			ask = append(ask, wish.e.key)
		}
	}
	held, called, err := w.now.TryLocks(ask, have)
	var winners, others []*wish
	for _, wish := range wishes {
		if held[wish.e.key] {
			wish.holds = w.now
			winners = append(winners, wish)
		} else {
			others = append(others, wish)
		}
	}
	w.elect(winners)
	w.disappoint(others, called, err)
	return err
}

// disappoint tells those who were not granted their lock, and who leads instead if
// they want to know; err is what kept the server from granting more.
func (w *worker) disappoint(others []*wish, called map[int64]bool, err error) {
	var curious []int64
	for _, wish := range others {
		if err == nil && wish.e.announcer.seesLeader {
			curious = append(curious, wish.e.key)
		}
	}
	leaders := w.now.Leaders(curious)
	for _, wish := range others {
		w.tell(wish, verdict{Grant: session.Grant{Leader: leaders[wish.e.key], Called: called[wish.e.key]}, err: err})
	}
}

// connect sees to it that there is a session.
func (w *worker) connect() (err error) {
	if w.now != nil && w.now.Context().Err() == nil {
		return nil
	}
	if w.now != nil {
		w.now.Close()       // its connections are in the pool's number
		w.server.Distrust() // it may be another one now
	}
	w.now, err = w.server.Open(w.ctx)
	return err
}
