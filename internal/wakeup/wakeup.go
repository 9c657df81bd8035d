// Package wakeup is notifications: who sends them, and whom they wake.
package wakeup

import (
	"context"
	"time"
)

// maxCalls is how many attempts notifications may cause between two regular ones:
// enough for two leaders that resign and two that are elected.
const maxCalls = 4

// Calls are the notifications that concern one campaign, or one observer. A nil *Calls
// receives none. See shared.Waker for the methods.
type Calls struct {
	pending chan struct{}
	left    int // until the next regular attempt
}

// New makes Calls that have received no notification.
func New() *Calls { return &Calls{pending: make(chan struct{}, 1), left: maxCalls} }

// Wake adds a wake-up. It may be called from any goroutine; the other methods are for one.
func (w *Calls) Wake() {
	select {
	case w.pending <- struct{}{}:
	default: // one is pending already
	}
}

func (w *Calls) Woken() <-chan struct{} {
	if w == nil || w.left == 0 {
		return nil
	}
	return w.pending
}

// Spend counts an attempt that a wake-up has caused.
func (w *Calls) Spend() { w.left-- }

func (w *Calls) Sleep(ctx context.Context, d time.Duration) (woken bool) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-w.Woken():
		w.Spend()
		return true
	}
	return false
}

func (w *Calls) Renew() {
	if w != nil {
		w.left = maxCalls
	}
}
