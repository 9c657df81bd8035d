package lock

import (
	"context"
	"time"
)

// maxWakeUps is how many attempts notifications may cause between two regular ones:
// enough for two leaders that resign and two that are elected.
const maxWakeUps = 4

// WakeUps are the notifications that concern one campaign, or one observer. A nil one
// receives none.
type WakeUps struct {
	pending chan struct{}
	left    int // until the next regular attempt
}

// NewWakeUps makes one that has received none.
func NewWakeUps() *WakeUps { return &WakeUps{pending: make(chan struct{}, 1), left: maxWakeUps} }

// Wake adds a wake-up. It may be called from any goroutine; the other methods are for one.
func (w *WakeUps) Wake() {
	select {
	case w.pending <- struct{}{}:
	default: // one is pending already
	}
}

// Woken receives a wake-up; the receiver then calls Spend.
func (w *WakeUps) Woken() <-chan struct{} {
	if w == nil || w.left == 0 {
		return nil
	}
	return w.pending
}

// Spend counts an attempt that a wake-up has caused.
func (w *WakeUps) Spend() { w.left-- }

// Sleep waits for d, a wake-up, which it spends, or the end of ctx. It reports whether it was
// a wake-up.
func (w *WakeUps) Sleep(ctx context.Context, d time.Duration) (woken bool) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-w.Woken():
		w.Spend()
		return true
	}
	return false
}

// Renew allows more wake-ups: a regular attempt is due.
func (w *WakeUps) Renew() {
	if w != nil {
		w.left = maxWakeUps
	}
}
