package dashboard

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	freshFor = time.Second     // for which an answer serves whoever asks, at least
	idleFor  = 10              // times as long as a look took, the server is left alone
	patience = 5 * time.Second // with one look at the server
	maxPause = 5 * time.Minute // between two looks while calls of the driver are stuck
	maxStuck = 16              // looks that do not return, of a pool without a limit
)

// A watch looks at the server for any number of viewers: once per second at the
// most, for a tenth of the time at the most, and one look at a time.
//
// On a dead link a driver's call may not return, whatever its context says. Such a
// look is abandoned after patience; it keeps its connection until it returns. The next
// look takes another connection, later with each look that is stuck, and none is made
// while half of the pool's connections are.
type watch struct {
	look func(context.Context) (facts, error)
	room func() int // how many looks may be stuck

	mu      sync.Mutex
	last    facts         // of the last look that succeeded
	err     error         // of the last look
	until   time.Time     // for so long it serves
	looking chan struct{} // closed when the look that goes on has ended, or is abandoned
	stuck   int           // looks that were abandoned, and have not returned
}

// facts are those of the last look, or of one that is made now. If that
// fails, they are of the last one that did not, with its error.
func (w *watch) facts(ctx context.Context) (facts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looking == nil && (time.Now().Before(w.until) || w.stuck >= w.room()) {
		return w.last, w.err
	}
	if w.looking == nil {
		w.looking = make(chan struct{})
		go w.lookOnce(w.looking)
	}
	looking := w.looking
	w.mu.Unlock()
	var left error
	select {
	case <-looking:
	case <-ctx.Done():
		left = context.Cause(ctx)
	}
	w.mu.Lock()
	if left != nil {
		return w.last, left
	}
	return w.last, w.err
}

// lookOnce makes one look, which does not end with the viewer who asked for it,
// since others wait for it too.
func (w *watch) lookOnce(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer time.AfterFunc(patience, func() { w.abandon(done) }).Stop()
	began := time.Now()
	seen, err := w.look(ctx)
	seen.seen = time.Now()
	seen.clip()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looking != done {
		w.returned(seen, err)
		return
	}
	w.err, w.until, w.looking = err, seen.seen.Add(freshFor), nil
	if err == nil {
		w.last, w.until = seen, seen.seen.Add(max(freshFor, idleFor*seen.seen.Sub(began)))
	}
	close(done)
}

// abandon leaves a look that has not returned to itself.
func (w *watch) abandon(done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looking != done {
		return // it has just returned
	}
	pause := maxPause
	if w.stuck < 6 { // 5 s << 6 is more than maxPause
		pause = min(patience<<w.stuck, maxPause)
	}
	w.stuck++
	w.err, w.until, w.looking = fmt.Errorf("the server does not answer: %w", context.DeadlineExceeded), time.Now().Add(pause), nil
	close(done)
}

// returned takes note of a look that returned after it was abandoned: the link is
// alive again, or the driver has given up, so another look is due.
func (w *watch) returned(seen facts, err error) {
	w.stuck--
	if soon := time.Now().Add(freshFor); w.until.After(soon) {
		w.until = soon
	}
	if err == nil && seen.at.After(w.last.at) {
		w.last = seen
	}
}
