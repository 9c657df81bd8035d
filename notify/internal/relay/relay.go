// Package relay shares one listening connection among any number of subscribers. It
// connects with the first, reconnects when the connection is lost, and closes it with the
// last.
package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
)

const (
	// Quiet is how long a connection may be silent before it is pinged, because a dead
	// link is silent too.
	Quiet = 30 * time.Second
	// Timeout bounds connecting and a ping.
	Timeout = 10 * time.Second
)

// waits are the waits before reconnecting.
var waits = backoff.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second}

// A Line is a listening connection. One goroutine at a time uses it.
type Line interface {
	// Hear waits for a notification and returns its payload. After each Quiet it pings.
	// It returns an error if the line is dead or ctx ends.
	Hear(ctx context.Context) (payload string, err error)
	// Close closes the connection and waits for its goroutines.
	Close()
}

// Before calls a function of the user's before a connection. It waits for the function no longer than ctx. A panic is an error.
func Before[T any](ctx context.Context, before func(context.Context) (T, error)) (T, error) {
	return backoff.Await(ctx, func(ctx context.Context) (value T, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the function of WithBeforeConnect panicked: %v", p)
			}
		}()
		return before(ctx)
	})
}

// A Relay's methods may be called from any goroutine.
type Relay struct {
	dial   func(context.Context) (Line, error)
	report func(error)

	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
	stop        context.CancelFunc // ends serve
	idle        chan struct{}      // closed when serve has returned
}

type subscriber struct{ wake func(payload string) }

// New returns a relay without a connection. The relay calls report, which may be nil, for
// each connection that failed or was lost.
func New(dial func(context.Context) (Line, error), report func(error)) *Relay {
	if report == nil {
		report = func(error) {}
	}
	idle := make(chan struct{})
	close(idle)
	return &Relay{dial: dial, report: report, subscribers: map[*subscriber]struct{}{}, idle: idle}
}

// Subscribe calls wake with each payload, and with "" after each connect, because payloads
// may have been missed. It does not wait for the connection. After unsubscribe returns,
// wake is not called again. The last unsubscribe closes the connection soon after. wake
// must call neither.
func (r *Relay) Subscribe(wake func(payload string)) (unsubscribe func()) {
	s := &subscriber{wake}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscribers[s] = struct{}{}
	if len(r.subscribers) == 1 {
		ctx, stop := context.WithCancel(context.Background())
		before, idle := r.idle, make(chan struct{})
		r.stop, r.idle = stop, idle
		go backoff.Apart(func() {
			defer close(idle)
			<-before // one connection at a time
			r.serve(ctx)
		})()
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

// serve connects and reconnects until ctx ends.
func (r *Relay) serve(ctx context.Context) {
	for failures := 1; ; failures++ {
		connected, err := r.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		backoff.Guard(func() {
			r.report(fmt.Errorf("notifier: disconnected, reconnecting; until then no notification arrives: %w", err))
		})
		if connected {
			failures = 1
		}
		if !backoff.Sleep(ctx, backoff.Jitter(waits.After(failures))) {
			return
		}
	}
}

// listen serves one connection until it is lost.
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
