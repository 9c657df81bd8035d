// Package hookstest records the events of an election, so that a test can wait for an
// event instead of sleeping.
//
//	rec := hookstest.NewRecorder()
//	e, err := elector.New(pool, "orders", elector.WithHooks(rec))
//	...
//	elected, err := hookstest.Wait[hooks.Elected](ctx, rec, nil)
//
// [Wait] and [WaitN] match past and future events. [Next] matches the events after a
// [Cursor]. No function of this package sleeps or polls. All of it works in a
// testing/synctest bubble, if the elector runs in the same bubble as the test.
//
// A Recorder also checks the contract of package hooks. End a test with
//
//	for _, v := range rec.Violations() {
//		t.Error(v)
//	}
package hookstest

import (
	"context"
	"slices"
	"sync"

	"github.com/pgelector/pgelector/hooks"
)

// Recorder is a hook that records every event. It is made by [NewRecorder], implements
// every interface of package hooks, and is safe for concurrent use.
type Recorder struct {
	inside hooks.All

	mu       sync.Mutex
	events   []any         // append-only, so waiters may read a slice of it without the lock
	more     chan struct{} // closed by the next event; nil if nobody waits
	contract contract
}

var _ hooks.All = (*Recorder)(nil)

// NewRecorder returns a Recorder. After it records an event, it calls the inner hooks in
// order. Use them to block, to panic or to do the leader's work: only during their calls
// can the Recorder detect a concurrent call of another hook.
func NewRecorder(inside ...hooks.Hook) *Recorder {
	return &Recorder{inside: hooks.Join(inside...)}
}

// OnElected records e.
func (r *Recorder) OnElected(ctx context.Context, e hooks.Elected) {
	defer r.record(e.Origin, "OnElected", e)()
	r.inside.OnElected(ctx, e)
}

// OnDemoted records e.
func (r *Recorder) OnDemoted(ctx context.Context, e hooks.Demoted) {
	defer r.record(e.Origin, "OnDemoted", e)()
	r.inside.OnDemoted(ctx, e)
}

// OnLeaderChanged records e.
func (r *Recorder) OnLeaderChanged(ctx context.Context, e hooks.LeaderChanged) {
	defer r.record(e.Origin, "OnLeaderChanged", e)()
	r.inside.OnLeaderChanged(ctx, e)
}

// OnError records e.
func (r *Recorder) OnError(ctx context.Context, e hooks.Failure) {
	defer r.record(e.Origin, "OnError", e)()
	r.inside.OnError(ctx, e)
}

// OnHeartbeat records e.
func (r *Recorder) OnHeartbeat(ctx context.Context, e hooks.Heartbeat) {
	defer r.record(e.Origin, "OnHeartbeat", e)()
	r.inside.OnHeartbeat(ctx, e)
}

// OnCampaign records e.
func (r *Recorder) OnCampaign(ctx context.Context, e hooks.Campaign) {
	defer r.record(e.Origin, "OnCampaign", e)()
	r.inside.OnCampaign(ctx, e)
}

// OnClosed records e.
func (r *Recorder) OnClosed(ctx context.Context, e hooks.Closed) {
	defer r.record(e.Origin, "OnClosed", e)()
	r.inside.OnClosed(ctx, e)
}

// record adds the event at the beginning of a call, and wakes the waiters. The caller
// calls end at the end of the call.
func (r *Recorder) record(from hooks.Origin, method string, event any) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
	r.contract.check(event)
	if r.more != nil {
		close(r.more)
		r.more = nil
	}
	if f, ok := event.(hooks.Failure); ok && (f.Op == hooks.OpWork || f.Returned != nil) {
		return func() {} // may run concurrently with another hook
	}
	r.contract.begin(from, method)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.contract.end(from, method)
	}
}

// since returns the events from position i on, and a channel that the next event closes.
// The first waiter makes the channel, so that it belongs to the synctest bubble of the
// test, even if the recorder does not.
func (r *Recorder) since(i int) (events []any, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.more == nil {
		r.more = make(chan struct{})
	}
	return r.events[i:], r.more
}

// Events returns all events in order. Each is one of the event values of package hooks.
func (r *Recorder) Events() []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Violations describes each breach of the contract of package hooks, in order:
//
//   - a hook was called for a candidate while another had not returned, other than
//     OnError for work or a hook that does not return (hooks.Failure.Returned);
//   - Elected and Demoted did not alternate, beginning with Elected, or named
//     different tokens;
//   - a candidate's token did not rise from term to term, or a token had been
//     another candidate's of the same election.
//
// It does not check that tokens rise from one candidate to the next: if a server ends a
// session just after the grant, the next leader may report first.
func (r *Recorder) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.contract.violations)
}

// Event is any of the event values of package hooks.
type Event interface {
	hooks.Elected | hooks.Demoted | hooks.LeaderChanged | hooks.Failure | hooks.Heartbeat | hooks.Campaign | hooks.Closed
}

// Elected returns the terms that began, in order.
func (r *Recorder) Elected() []hooks.Elected { return only[hooks.Elected](r) }

// Demoted returns the terms that ended, in order.
func (r *Recorder) Demoted() []hooks.Demoted { return only[hooks.Demoted](r) }

// LeaderChanges returns the changes of leader, in order.
func (r *Recorder) LeaderChanges() []hooks.LeaderChanged { return only[hooks.LeaderChanged](r) }

// Failures returns the failures, in order.
func (r *Recorder) Failures() []hooks.Failure { return only[hooks.Failure](r) }

// Heartbeats returns the answered heartbeats, in order.
func (r *Recorder) Heartbeats() []hooks.Heartbeat { return only[hooks.Heartbeat](r) }

// Campaigns returns the attempts to be elected, in order.
func (r *Recorder) Campaigns() []hooks.Campaign { return only[hooks.Campaign](r) }

// Closed returns the electors that were closed, in order.
func (r *Recorder) Closed() []hooks.Closed { return only[hooks.Closed](r) }

func only[E Event](r *Recorder) []E {
	var found []E
	for _, event := range r.Events() {
		if e, ok := event.(E); ok {
			found = append(found, e)
		}
	}
	return found
}
