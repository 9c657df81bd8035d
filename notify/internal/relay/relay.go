// Package relay keeps one listening connection for any number of subscribers. It connects
// with the first, reconnects when the connection is lost, and closes it with the last.
package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
)

const (
	// Quiet is how long a connection may be silent before it is pinged: a dead link is
	// silent, too.
	Quiet = 30 * time.Second
	// Timeout bounds connecting, and the answer to a ping.
	Timeout = 10 * time.Second
)

// backoff is how long to wait before reconnecting.
var waits = backoff.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second}

// A Line is a connection that listens. It is used by one goroutine at a time.
type Line interface {
	// Hear waits for a notification and returns its payload. After each Quiet it
	// makes sure that the connection lives. An error says that the line is dead, or
	// that ctx has ended.
	Hear(ctx context.Context) (payload string, err error)
	// Close ends the connection and waits for what serves it.
	Close()
}

// A Relay is used by any goroutine.
type Relay struct {
	dial   func(context.Context) (Line, error)
	report func(error)

	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
	stop        context.CancelFunc // ends what serves the subscribers
	idle        chan struct{}      // closed when nobody serves
}

type subscriber struct{ wake func(payload string) }

// New connects nothing yet. report is told of each connection that failed or was
// lost, on a goroutine of the relay's; it may be nil.
func New(dial func(context.Context) (Line, error), report func(error)) *Relay {
	if report == nil {
		report = func(error) {}
	}
	idle := make(chan struct{})
	close(idle)
	return &Relay{dial: dial, report: report, subscribers: map[*subscriber]struct{}{}, idle: idle}
}

// Subscribe has wake called with each payload, and with "" after each connecting,
// when some may have been missed. It does not wait for the connection. After
// unsubscribe has returned wake is not called any more; if it was the last, the
// connection is closed soon after. Neither may be called by wake.
func (r *Relay) Subscribe(wake func(payload string)) (unsubscribe func()) {
	s := &subscriber{wake}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscribers[s] = struct{}{}
	if len(r.subscribers) == 1 {
		ctx, stop := context.WithCancel(context.Background())
		before, idle := r.idle, make(chan struct{})
		r.stop, r.idle = stop, idle
		go func() {
			defer close(idle)
			<-before // one connection at a time
			r.serve(ctx)
		}()
	}
	return sync.OnceFunc(func() { r.unsubscribe(s) })
}

func (r *Relay) unsubscribe(s *subscriber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.subscribers, s); len(r.subscribers) == 0 {
		r.stop()
	}
}

// serve connects, and connects again, until nobody listens.
func (r *Relay) serve(ctx context.Context) {
	for failures := 1; ; failures++ {
		connected, err := r.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		r.report(fmt.Errorf("notifier: no notification arrives until it has reconnected, which goes on: %w", err))
		if connected {
			failures = 1
		}
		if !backoff.Sleep(ctx, backoff.Jitter(waits.After(failures))) {
			return
		}
	}
}

// listen is one connection, from its beginning to its end.
func (r *Relay) listen(ctx context.Context) (connected bool, err error) {
	dialling, cancel := context.WithTimeout(ctx, Timeout)
	line, err := r.dial(dialling)
	cancel()
	if err != nil {
		return false, err
	}
	defer line.Close()
	r.wake("")
	for {
		payload, err := line.Hear(ctx)
		if err != nil {
			return true, err
		}
		r.wake(payload)
	}
}

func (r *Relay) wake(payload string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.subscribers {
		s.wake(payload)
	}
}
