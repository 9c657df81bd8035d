package elector

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/wakeup"
)

// An event is what a notification says of its election.
type event string

const (
	eventFree      event = "free"
	eventLed       event = "led"
	eventSuccessor event = "successor"
	eventRequest   event = "request"
)

// notifyPatience is how long a release, an offer or a request waits until its notification is
// sent.
const notifyPatience = time.Second

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

// subscribe calls wake for each notification about the election that matters, and when some
// may have been missed.
func (n *candidate) subscribe(wake func(), matters func(what event, id string) bool) (unsubscribe func()) {
	if n.notifier == nil {
		return func() {}
	}
	var stop func()
	n.guarded(func() {
		stop = n.notifier.Subscribe(func(payload string) {
			if what, id, ours := parse(payload, n.key); payload == "" || ours && matters(what, id) {
				wake()
			}
		})
	})
	return func() {
		if stop != nil {
			n.guarded(stop)
		}
	}
}

var errNotifierPanicked = errors.New("elector: the notifier panicked")

// guarded makes a call of the notifier, and reports a panic.
func (n *candidate) guarded(call func()) {
	var panicked error
	backoff.Guard(func() {
		defer func() {
			if p := recover(); p != nil {
				panicked = newPanicError(errNotifierPanicked, p)
			}
		}()
		call()
	})
	if panicked != nil {
		n.report(context.Background(), hooks.Failure{Op: hooks.OpHook, Err: panicked})
	}
}

// sleep waits for d, a wake-up, or the end of ctx.
func sleep(ctx context.Context, d time.Duration, w *wakeup.Calls) {
	if d > 0 && !w.Sleep(ctx, d) {
		w.Renew()
	}
}
