package elector

import (
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/lease"
)

// An announcer calls the hooks, one at a time and in order, on a goroutine that ends when
// the queue is empty.
type announcer struct {
	origin hooks.Origin
	hooks  atomic.Pointer[hookSet]

	calling  atomic.Pointer[hookCall] // of the queue; nil between two calls
	patience time.Duration            // after which a hook is reported

	mu      sync.Mutex // also of those who replace hooks
	queue   []announcement
	emptied chan struct{} // closed when the queue is empty; nil if it is
	closed  bool          // the queue takes no more
}

type announcement struct {
	call      func()
	heartbeat bool            // may be replaced by a newer one
	term      context.Context // the announcement is dropped once this term has ended; nil: never
	last      bool            // nothing may follow
}

func newAnnouncer(origin hooks.Origin, all []hooks.Hook, l lease.Lease) *announcer {
	a := &announcer{origin: origin, patience: max(l.Drain, l.Heartbeat)}
	a.hooks.Store(newHookSet(register(all)))
	return a
}

// seesLeader reports whether any hook wants OnLeaderChanged.
func (a *announcer) seesLeader() bool { return a.hooks.Load().seesLeader }

// post queues an announcement.
func (a *announcer) post(call func()) { a.enqueue(announcement{call: call}) }

// announce queues an announcement and waits until the hooks have returned.
func (a *announcer) announce(call func()) {
	done := make(chan struct{})
	a.post(func() {
		defer close(done)
		call()
	})
	<-done
}

func (a *announcer) enqueue(n announcement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || n.term != nil && n.term.Err() != nil { // its OnDemoted may have been the last event
		return
	}
	a.closed = n.last
	if last := len(a.queue) - 1; n.heartbeat && last >= 0 && a.queue[last].heartbeat {
		a.queue[last] = n
		return
	}
	a.queue = append(a.queue, n)
	if a.emptied == nil {
		a.emptied = make(chan struct{})
		go backoff.Apart(a.drain)()
	}
}

func (a *announcer) drain() {
	empty := false
	defer func() {
		if !empty { // a hook ended its goroutine, as a test that fails does (runtime.Goexit)
			go a.drain()
		}
	}()
	for {
		a.mu.Lock()
		if len(a.queue) == 0 {
			close(a.emptied)
			a.emptied = nil
			a.mu.Unlock()
			empty = true
			return
		}
		next := a.queue[0]
		a.queue = a.queue[1:]
		a.mu.Unlock()
		next.call()
	}
}

// flush waits until the queue is empty.
func (a *announcer) flush() {
	a.mu.Lock()
	emptied := a.emptied
	a.mu.Unlock()
	if emptied != nil {
		<-emptied
	}
}

// A hookCall is a call of a hook that goes on.
type hookCall struct {
	of       *registration
	method   string
	returned chan struct{}
}

func (c *hookCall) String() string { return fmt.Sprintf("%s of %T", c.method, c.of.hook) }

// busy says which hook is being called, for an error of a wait.
func (a *announcer) busy() string {
	if c := a.calling.Load(); c != nil {
		return fmt.Sprintf(" (%v goes on)", c)
	}
	return ""
}

// calls records a call by the queue until returned is called. It reports a call that does not
// return, except a call of OnElected, which is work of the term.
func (a *announcer) calls(of *registration, method string) (returned func()) {
	c := &hookCall{of, method, make(chan struct{})}
	began, reported := time.Now(), make(chan struct{})
	a.calling.Store(c)
	report := time.AfterFunc(a.patience, func() {
		defer close(reported)
		again, cancel := context.WithTimeout(context.Background(), a.patience/4) // the process may have stood still
		defer cancel()
		if gate.Await(again, c.returned) || method == "OnElected" {
			return
		}
		backoff.Guard(a.beside(again, hooks.Failure{Op: hooks.OpHook, Since: began, Returned: c.returned, Err: fmt.Errorf(
			"elector: %v has not returned for %v: until it does, no hook is called, this candidate does not campaign, and a term that ends keeps its lock, "+
				"so that nobody else can lead: make it return, or restart the process", c, time.Since(began).Round(time.Millisecond))}))
	})
	return func() {
		a.calling.Store(nil)
		close(c.returned)
		if !report.Stop() {
			<-reported
		}
	}
}

// beside makes a report that bypasses the queue. The hook that the queue calls receives it last,
// and not at all if its OnError does not return soon.
func (a *announcer) beside(ctx context.Context, f hooks.Failure) func() {
	f.Origin, f.At = a.origin, time.Now()
	report := func(h hooks.ErrorHook) { h.OnError(context.WithoutCancel(ctx), f) }
	return func() {
		all, c := slices.Clone(a.hooks.Load().all), a.calling.Load()
		if i := slices.IndexFunc(all, func(r *registration) bool { return c != nil && r == c.of }); i >= 0 {
			all = slices.Delete(all, i, i+1)
			defer func() {
				soon, cancel := context.WithTimeout(context.Background(), a.patience)
				defer cancel()
				if c.method != "OnError" || gate.Await(soon, c.returned) {
					tell(nil, "OnError", []*registration{c.of}, report, a.panicked)
				}
			}()
		}
		tell(nil, "OnError", all, report, a.panicked)
	}
}

// tell calls each hook that receives H, in order. Each call is guarded: if a hook panics, or ends
// its goroutine as a test that fails does, the other hooks still receive the event. queue is nil
// if the call does not come from the queue.
func tell[H any](queue *announcer, method string, all []*registration, call func(H), panicked func(error)) {
	if len(all) == 0 {
		return
	}
	defer tell(queue, method, all[1:], call, panicked)
	defer func() {
		if p := recover(); p != nil {
			panicked(newPanicError(errHookPanicked, p))
		}
	}()
	if h, ok := all[0].hook.(H); ok && !all[0].removed.Load() { // perhaps removed by the hook before
		if queue != nil {
			defer queue.calls(all[0], method)()
		}
		call(h)
	}
}

// panicked reports a panic of a hook. If OnError panics at that, nobody is left to report to.
func (a *announcer) panicked(err error) {
	f := hooks.Failure{Origin: a.origin, Op: hooks.OpHook, Err: err, At: time.Now()}
	tell(nil, "OnError", a.hooks.Load().all, func(h hooks.ErrorHook) { h.OnError(context.Background(), f) }, func(error) {})
}

// toAll makes an announcement to all hooks, as they are when it is called.
func toAll[H any](a *announcer, method string, call func(H)) func() {
	return func() { tell(a, method, a.hooks.Load().all, call, a.panicked) }
}

// Each of the following makes the announcement of one event.

// elected passes a hook's panic to end at once: a later hook may work until the term ends.
func (a *announcer) elected(ctx context.Context, e hooks.Elected, end func(error)) func() {
	e.Origin = a.origin
	return func() {
		all := a.hooks.Load().all
		for _, r := range all {
			r.elected = true
		}
		pprof.SetGoroutineLabels(ctx) // OnElected may be the work
		defer pprof.SetGoroutineLabels(context.Background())
		tell(a, "OnElected", all, func(h hooks.ElectedHook) { h.OnElected(ctx, e) }, func(err error) {
			end(err)
			a.panicked(err)
		})
	}
}

func (a *announcer) demoted(ctx context.Context, d hooks.Demoted) func() {
	d.Origin = a.origin
	return func() {
		tell(a, "OnDemoted", a.hooks.Load().toDemote(), func(h hooks.DemotedHook) { h.OnDemoted(context.WithoutCancel(ctx), d) }, a.panicked)
	}
}

func (a *announcer) failure(ctx context.Context, f hooks.Failure) func() {
	f.Origin, f.At = a.origin, time.Now()
	return toAll(a, "OnError", func(h hooks.ErrorHook) { h.OnError(context.WithoutCancel(ctx), f) })
}

func (a *announcer) campaign(ctx context.Context, c hooks.Campaign) func() {
	c.Origin, c.At = a.origin, time.Now()
	return toAll(a, "OnCampaign", func(h hooks.CampaignHook) { h.OnCampaign(context.WithoutCancel(ctx), c) })
}

func (a *announcer) leaderChanged(ctx context.Context, c hooks.LeaderChanged) func() {
	c.Origin, c.At = a.origin, time.Now()
	return toAll(a, "OnLeaderChanged", func(h hooks.LeaderChangedHook) { h.OnLeaderChanged(context.WithoutCancel(ctx), c) })
}

// close announces OnClosed, and waits for it and for what was queued before. A failure that
// is reported later is dropped.
func (a *announcer) close() {
	c := hooks.Closed{Origin: a.origin, At: time.Now()}
	a.enqueue(announcement{last: true, call: func() { a.tellClosed(a.hooks.Load().all, c) }})
	a.flush()
}

// tellClosed tells each hook. A hook that was told does not hear of a later hook's panic.
func (a *announcer) tellClosed(all []*registration, c hooks.Closed) {
	if len(all) == 0 {
		return
	}
	defer a.tellClosed(all[1:], c)
	tell(a, "OnClosed", all[:1], func(h hooks.ClosedHook) {
		all[0].removed.Store(true)
		h.OnClosed(context.Background(), c)
	}, a.panicked)
}

// heartbeat never waits: a slow hook must not cost the lease.
func (a *announcer) heartbeat(ctx context.Context, h hooks.Heartbeat) {
	if !a.hooks.Load().seesHeartbeat {
		return
	}
	h.Origin, h.At = a.origin, time.Now()
	call := toAll(a, "OnHeartbeat", func(hook hooks.HeartbeatHook) { hook.OnHeartbeat(context.WithoutCancel(ctx), h) })
	a.enqueue(announcement{heartbeat: true, term: ctx, call: call})
}
