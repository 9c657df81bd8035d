package hookstest

import (
	"context"
	"slices"
	"sync"

	"github.com/pgelector/pgelector/hooks"
)

// Recorder is a hook that remembers every event. It is made by [NewRecorder],
// implements every interface of package hooks, and is safe for concurrent use
// by any number of electors and tests.
type Recorder struct {
	inside everyHook

	mu       sync.Mutex
	events   []any         // only ever appended to, so that a waiter may read what it was given
	more     chan struct{} // closed by the next event; nil if nobody waits for it
	contract contract
}

// everyHook is what hooks.Join returns.
type everyHook interface {
	hooks.ElectedHook
	hooks.DemotedHook
	hooks.LeaderChangedHook
	hooks.ErrorHook
	hooks.HeartbeatHook
	hooks.CampaignHook
}

var _ everyHook = (*Recorder)(nil)

// NewRecorder returns a Recorder without events. The hooks given are called in
// order inside the recorder's own, once the event is recorded. Use them to
// block, to panic or to do the leader's work: unlike a hook that is registered
// beside the recorder, they let it see that another call comes meanwhile.
func NewRecorder(inside ...hooks.Hook) *Recorder {
	return &Recorder{inside: hooks.Join(inside...).(everyHook)}
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

// record adds the event of a call that begins, and wakes who waits for it. The
// function it returns is for the call's end.
func (r *Recorder) record(from hooks.Origin, method string, event any) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
	r.contract.check(event)
	if r.more != nil {
		close(r.more)
		r.more = nil
	}
	if f, ok := event.(hooks.Failure); ok && f.Op == hooks.OpWork {
		return func() {} // it may come while another hook runs
	}
	r.contract.begin(from, method)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.contract.end(from, method)
	}
}

// since returns the events from position i on, and a channel that the next
// event closes. The channel is made by whoever waits first, so that it belongs
// to the synctest bubble of the test, wherever the recorder was made.
func (r *Recorder) since(i int) (events []any, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.more == nil {
		r.more = make(chan struct{})
	}
	return r.events[i:], r.more
}

// Events returns all events in the order in which they came. Each is one of the
// event values of package hooks.
func (r *Recorder) Events() []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Violations returns a sentence for each breach of the contract of package
// hooks that was seen, in order:
//
//   - a hook was called for a candidate while another had not returned, other than
//     OnError for work that overran (hooks.OpWork);
//   - Elected and Demoted did not alternate, beginning with Elected, or named
//     different tokens;
//   - a candidate's token did not rise from term to term, or a token had been
//     another candidate's of the same election.
//
// That tokens rise from one candidate to the next is not checked: when a server
// ends a session just after the grant, the next leader may report first.
func (r *Recorder) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.contract.violations)
}
