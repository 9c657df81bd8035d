package elector

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// everyHook is what hooks.Join returns.
type everyHook interface {
	hooks.ElectedHook
	hooks.DemotedHook
	hooks.LeaderChangedHook
	hooks.ErrorHook
	hooks.HeartbeatHook
	hooks.CampaignHook
}

// An announcer calls the hooks, one at a time and in order, on a goroutine that
// lives only while there is something to tell.
type announcer struct {
	origin        hooks.Origin
	hook          everyHook
	seesHeartbeat bool // whether any hook wants it
	seesLeader    bool

	mu      sync.Mutex
	queue   []announcement
	telling chan struct{} // closed when the queue is empty; nil if nobody tells
}

type announcement struct {
	tell      func()
	heartbeat bool // may be replaced by a newer one
}

func newAnnouncer(origin hooks.Origin, all []hooks.Hook) *announcer {
	hook := hooks.Join(all...)
	return &announcer{
		origin:        origin,
		hook:          hook.(everyHook),
		seesHeartbeat: hooks.Wants[hooks.HeartbeatHook](hook),
		seesLeader:    hooks.Wants[hooks.LeaderChangedHook](hook),
	}
}

// post queues an announcement and goes on.
func (a *announcer) post(tell func()) { a.enqueue(announcement{tell: tell}) }

// announce queues an announcement and waits until the hooks have returned.
func (a *announcer) announce(tell func()) {
	told := make(chan struct{})
	a.post(func() {
		defer close(told)
		tell()
	})
	<-told
}

func (a *announcer) enqueue(n announcement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last := len(a.queue) - 1; n.heartbeat && last >= 0 && a.queue[last].heartbeat {
		a.queue[last] = n
		return
	}
	a.queue = append(a.queue, n)
	if a.telling == nil {
		a.telling = make(chan struct{})
		go a.tellAll()
	}
}

func (a *announcer) tellAll() {
	told := false
	defer func() {
		if !told { // a hook ended its goroutine, as a test that fails does (runtime.Goexit)
			go a.tellAll()
		}
	}()
	for {
		a.mu.Lock()
		if len(a.queue) == 0 {
			close(a.telling)
			a.telling = nil
			a.mu.Unlock()
			told = true
			return
		}
		next := a.queue[0]
		a.queue = a.queue[1:]
		a.mu.Unlock()
		next.tell()
	}
}

// flush waits until everything posted has been told.
func (a *announcer) flush() {
	a.mu.Lock()
	telling := a.telling
	a.mu.Unlock()
	if telling != nil {
		<-telling
	}
}

// guard recovers a panic of a hook and reports it; panicked may be nil.
func (a *announcer) guard(call func(), panicked func(error)) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		err := fmt.Errorf("%w: %v\n%s", ErrHookPanicked, p, debug.Stack())
		defer func() { _ = recover() }() // OnError itself panicked: there is nobody left to tell
		if panicked != nil {
			panicked(err)
		}
		a.hook.OnError(context.Background(), hooks.Failure{Origin: a.origin, Op: hooks.OpHook, Err: err, At: time.Now()})
	}()
	call()
}

// What is announced: each method makes the announcement of one event.

// elected calls returned when the hooks are done, with an error if one panicked.
func (a *announcer) elected(ctx context.Context, e hooks.Elected, returned func(error)) func() {
	e.Origin = a.origin
	return func() {
		var failed error
		defer func() { returned(failed) }()
		a.guard(func() { a.hook.OnElected(ctx, e) }, func(err error) { failed = err })
	}
}

func (a *announcer) demoted(ctx context.Context, d hooks.Demoted) func() {
	d.Origin = a.origin
	return func() { a.guard(func() { a.hook.OnDemoted(context.WithoutCancel(ctx), d) }, nil) }
}

func (a *announcer) failure(ctx context.Context, f hooks.Failure) func() {
	f.Origin, f.At = a.origin, time.Now()
	return func() { a.guard(func() { a.hook.OnError(context.WithoutCancel(ctx), f) }, nil) }
}

func (a *announcer) campaign(ctx context.Context, c hooks.Campaign) func() {
	c.Origin, c.At = a.origin, time.Now()
	return func() { a.guard(func() { a.hook.OnCampaign(context.WithoutCancel(ctx), c) }, nil) }
}

func (a *announcer) leaderChanged(ctx context.Context, c hooks.LeaderChanged) func() {
	c.Origin, c.At = a.origin, time.Now()
	return func() { a.guard(func() { a.hook.OnLeaderChanged(context.WithoutCancel(ctx), c) }, nil) }
}

// heartbeat never waits: a slow hook must not cost the lease.
func (a *announcer) heartbeat(ctx context.Context, h hooks.Heartbeat) {
	if !a.seesHeartbeat {
		return
	}
	h.Origin, h.At = a.origin, time.Now()
	a.enqueue(announcement{heartbeat: true, tell: func() {
		a.guard(func() { a.hook.OnHeartbeat(context.WithoutCancel(ctx), h) }, nil)
	}})
}
