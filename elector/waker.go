package elector

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// WakeChannel is the channel of PostgreSQL's LISTEN and NOTIFY on which candidates
// with a waker tell the others of their election. The payload is a word, the
// election's key, and for the last of them a candidate's id, with a space between:
//
//	free -7521986112043361452           a leader has resigned: try now
//	led -7521986112043361452            a leader was elected: look who it is
//	heir -7521986112043361452 web-2     that candidate is called to be the next leader
//
// Whoever may connect to the database may send them. They are hints: none is trusted,
// and none is needed.
const WakeChannel = "pgelector"

// A Waker hears the notifications on WakeChannel for any number of electors. Package
// wakers/pgx has one for pgx, and wakers/pq one for lib/pq.
type Waker interface {
	// Subscribe has wake called with the payload of each notification on
	// WakeChannel, and with "" whenever some may have been missed, such as after it
	// has connected again. wake returns at once. Subscribe does not wait for a
	// connection; after unsubscribe has returned, wake is not called any more. Both
	// are called from any goroutine, but not by wake.
	Subscribe(wake func(payload string)) (unsubscribe func())
}

// WithWaker makes a resigning leader tell the others that the lock is free, and a
// candidate that polls, and Observe, hear of it at once rather than at their next
// attempt. A notification that is lost costs what it would have cost without a waker:
// one retry interval. However many come, no more than four attempts are made for them
// in a retry interval, so a stranger's cost little.
//
// It costs nothing at rest but the waker's one connection for each process. A
// resignation remains one statement, an election has one more; both write one small
// commit. Candidates with and without one go together.
func WithWaker(w Waker) Option {
	return func(c *config) error {
		if w == nil {
			return fmt.Errorf("WithWaker(nil): want a waker, such as that of package wakers/pgx or wakers/pq")
		}
		c.waker = w
		return nil
	}
}

// word is what a notification says.
type word string

const (
	wordFree word = "free"
	wordLed  word = "led"
	wordHeir word = "heir"
)

// payload writes a notification about an election.
func payload(w word, key int64, more ...string) string {
	return strings.Join(append([]string{string(w), strconv.FormatInt(key, 10)}, more...), " ")
}

// parse reads a payload: whether it is about the election, what it says, and of whom.
func parse(payload string, key int64) (w word, id string, ours bool) {
	first, rest, _ := strings.Cut(payload, " ")
	number, id, _ := strings.Cut(rest, " ")
	return word(first), id, number == strconv.FormatInt(key, 10)
}

// heeded is how many attempts may be made for notifications between two that come by
// themselves: enough for two leaders that resign and two that are elected.
const heeded = 4

// A bell is rung by the waker, for one campaign or one Observe. It is heeded so many
// times between two attempts that come by themselves; what rings besides waits for
// those. One that is nil never rings.
type bell struct {
	rung chan struct{}
	left int
}

// hang makes a bell that is rung by the notifications about the election that matter.
func (e *Elector) hang(matters func(w word, id string) bool) (b *bell, takeDown func()) {
	if e.waker == nil {
		return nil, func() {}
	}
	b = &bell{rung: make(chan struct{}, 1), left: heeded}
	return b, e.waker.Subscribe(func(payload string) {
		if w, id, ours := parse(payload, e.key); payload == "" || ours && matters(w, id) {
			b.ring()
		}
	})
}

// listen hangs the campaign's bell. A parked candidate needs no waking.
func (c *campaign) listen() (hangUp func()) {
	if _, parked := c.source.(*parker); parked {
		return func() {}
	}
	b, takeDown := c.hang(func(w word, id string) bool {
		return w == wordFree || w == wordLed && c.announcer.seesLeader || w == wordHeir && id == c.candidateID
	})
	c.bell = b
	return takeDown
}

func (b *bell) ring() {
	select {
	case b.rung <- struct{}{}:
	default: // it is ringing
	}
}

// rings is received from to hear a ring; then heed must be called.
func (b *bell) rings() <-chan struct{} {
	if b == nil || b.left == 0 {
		return nil
	}
	return b.rung
}

// heed counts a ring that was heeded.
func (b *bell) heed() { b.left-- }

// renew is called at an attempt that comes by itself.
func (b *bell) renew() {
	if b != nil {
		b.left = heeded
	}
}

// sleep waits for d, or until the bell rings or ctx ends.
func (b *bell) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
		b.renew()
	case <-b.rings():
		b.heed()
	case <-ctx.Done():
	}
}

// tell notifies the others of the election. If the session cannot, its next heartbeat
// tells.
func (t *Term) tell(ctx context.Context, w word, more ...string) {
	if t.elector.waker != nil {
		_ = t.session.Notify(ctx, WakeChannel, payload(w, t.elector.key, more...))
	}
}
