package elector

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pgelector/pgelector/internal/lock"
)

// NotifyChannel is the channel of PostgreSQL's LISTEN and NOTIFY on which candidates
// with a notifier send events of their election to the others. The payload is an event,
// the election's key, and for the last event a candidate id, separated by spaces:
//
//	free -7521986112043361452           a leader has resigned: try now
//	led -7521986112043361452            a leader was elected: look who it is
//	successor -7521986112043361452 web-2     that candidate shall be the next leader
//
// Any role that may connect to the database may send them. They are hints: no candidate
// trusts or needs one.
const NotifyChannel = "pgelector"

// A Notifier receives the notifications on NotifyChannel for any number of electors.
// Package notify/pgx has one for pgx, package notify/pq one for lib/pq.
type Notifier interface {
	// Subscribe calls wake with the payload of each notification on NotifyChannel.
	// It calls wake with "" when it may have missed some, such as after it has
	// reconnected. wake returns at once. Subscribe does not wait for a connection.
	// No call of wake begins after unsubscribe has returned. Subscribe and
	// unsubscribe may be called from any goroutine, but not by wake.
	Subscribe(wake func(payload string)) (unsubscribe func())
}

// WithNotifier makes a resigning leader notify the others that the lock is free. A
// candidate that polls then tries at once, and [Elector.Observe] looks at once. A lost
// notification costs one retry interval, as without a notifier. A candidate makes at most
// four attempts for notifications in one retry interval, so a stranger's notifications
// cost little.
//
// At rest it costs the notifier's one connection for each process. A resignation is still
// one statement, an election has one more; both write one small commit. Candidates with
// and without a notifier work together. The default is none.
func WithNotifier(n Notifier) Option {
	return func(c *config) error {
		if n == nil {
			return fmt.Errorf("WithNotifier(nil): want a notifier, such as that of package notify/pgx or notify/pq")
		}
		c.notifier = n
		return nil
	}
}

// An event is what a notification says of its election.
type event string

const (
	eventFree      event = "free"
	eventLed       event = "led"
	eventSuccessor event = "successor"
)

// payload writes a notification about an election.
func payload(what event, key int64, more ...string) string {
	return strings.Join(append([]string{string(what), strconv.FormatInt(key, 10)}, more...), " ")
}

// parse reads a payload. ours is whether it is about the election of that key.
func parse(payload string, key int64) (what event, id string, ours bool) {
	first, rest, _ := strings.Cut(payload, " ")
	number, id, _ := strings.Cut(rest, " ")
	return event(first), id, number == strconv.FormatInt(key, 10)
}

// subscribe receives the notifications about the election that matter.
func (e *Elector) subscribe(matters func(what event, id string) bool) (w *lock.WakeUps, unsubscribe func()) {
	if e.notifier == nil {
		return nil, func() {}
	}
	w = lock.NewWakeUps()
	return w, e.notifier.Subscribe(func(payload string) {
		if what, id, ours := parse(payload, e.key); payload == "" || ours && matters(what, id) {
			w.Wake()
		}
	})
}

// subscribe receives what concerns the campaign. A candidate that waits in the server
// needs no notification.
func (c *campaign) subscribe() (unsubscribe func()) {
	if c.standby == Wait {
		return func() {}
	}
	w, unsubscribe := c.Elector.subscribe(func(what event, id string) bool {
		return what == eventFree || what == eventLed && c.announcer.seesLeader || what == eventSuccessor && id == c.candidateID
	})
	c.wakeUps = w
	return unsubscribe
}

// sleep waits for d, a wake-up, or the end of ctx.
func sleep(ctx context.Context, d time.Duration, w *lock.WakeUps) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
		w.Renew()
	case <-w.Woken():
		w.Spend()
	case <-ctx.Done():
	}
}

// notify sends an event to the others of the election. If the session cannot, its next
// heartbeat reports that.
func (t *Term) notify(ctx context.Context, what event, more ...string) {
	if t.elector.notifier != nil {
		_ = t.lock.Notify(ctx, lock.Notification{Channel: NotifyChannel, Payload: payload(what, t.elector.key, more...)})
	}
}
