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
)

// A watch looks at the server for any number of viewers: once per second at the
// most, for a tenth of the time at the most, and never twice at a time.
type watch struct {
	look func(context.Context) (facts, error)

	mu      sync.Mutex
	last    facts         // of the last look that succeeded
	err     error         // of the last look
	until   time.Time     // for so long it serves
	looking chan struct{} // closed when the look that goes on has ended
}

// facts are those of the last look, or of one that is made now. If that
// fails, they are of the last one that did not, with its error.
func (w *watch) facts(ctx context.Context) (facts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().Before(w.until) {
		return w.last, w.err
	}
	if w.looking == nil {
		w.looking = make(chan struct{})
		go w.lookOnce(w.looking)
	}
	looking, patience := w.looking, time.NewTimer(patience)
	defer patience.Stop()
	w.mu.Unlock()
	var late error
	select {
	case <-looking:
	case <-ctx.Done():
		late = context.Cause(ctx)
	case <-patience.C: // on a dead link a driver may not return
		late = fmt.Errorf("the server does not answer: %w", context.DeadlineExceeded)
	}
	w.mu.Lock()
	if late != nil {
		return w.last, late
	}
	return w.last, w.err
}

// lookOnce makes one look, which does not end with the viewer who asked for it,
// since others wait for it too.
func (w *watch) lookOnce(done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	seen, err := w.look(ctx)
	took := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err, w.until, w.looking = err, time.Now().Add(freshFor), nil
	if err == nil {
		w.last, w.until = seen, time.Now().Add(max(freshFor, idleFor*took))
	}
}
