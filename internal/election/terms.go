package election

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Terms is the room of terms: of one election, or of several that end together. One call ends all terms in the room, for a reason
// such as a shutdown or a failed health check. The zero Terms is ready. Any goroutine may call the methods.
type Terms struct {
	mu       sync.Mutex
	all      map[*Term]struct{}                    // that go on
	refusals []*ending                             // while there is one, no term may begin
	allowed  chan struct{}                         // closed when no refusal is left; nil if there is none
	attempts map[*context.CancelCauseFunc]struct{} // that go on
}

// End ends all terms. When it returns they have ended.
func (r *Terms) End(reason Reason, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(reason, cause)
}

func (r *Terms) end(reason Reason, cause error) {
	for t := range r.all {
		t.end(reason, cause)
	}
}

// Refuse ends all terms, as End does. Until Allow is called with the same reason, each new term ends as it begins, and no
// campaign makes an attempt.
func (r *Terms) Refuse(reason Reason, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause(reason, cause)
	r.end(reason, cause)
}

// Pause refuses new terms, as Refuse does, but ends no term that goes on.
func (r *Terms) Pause(reason Reason, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause(reason, cause)
}

func (r *Terms) pause(reason Reason, cause error) {
	why := &ending{reason, cause}
	r.refusals = append(slices.DeleteFunc(r.refusals, func(e *ending) bool { return e.Reason == reason }), why)
	if r.allowed == nil {
		r.allowed = make(chan struct{})
	}
	for attempt := range r.attempts {
		(*attempt)(why)
	}
}

// whileAllowed is a context that ends with ctx, and when terms are refused.
func (r *Terms) whileAllowed(ctx context.Context) (trying context.Context, stop func()) {
	trying, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attempts == nil {
		r.attempts = map[*context.CancelCauseFunc]struct{}{}
	}
	r.attempts[&cancel] = struct{}{}
	if len(r.refusals) > 0 {
		cancel(r.refusals[0])
	}
	return trying, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.attempts, &cancel)
		cancel(nil)
	}
}

// Allow takes back what Refuse has refused for that reason.
func (r *Terms) Allow(reason Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusals = slices.DeleteFunc(r.refusals, func(e *ending) bool { return e.Reason == reason })
	if len(r.refusals) == 0 && r.allowed != nil {
		close(r.allowed)
		r.allowed = nil
	}
}

// enter lets a term into the room until leave is called. If terms are refused, the term ends at once.
func (r *Terms) enter(t *Term) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*Term]struct{}{}
	}
	r.all[t] = struct{}{}
	if len(r.refusals) > 0 {
		t.end(r.refusals[0].Reason, r.refusals[0].err)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, t)
	}
}

// refusal is why no term may begin; nil if terms may.
func (r *Terms) refusal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.refusals) > 0 {
		return r.refusals[0]
	}
	return nil
}

// await waits until terms may begin, or ctx or the pause ends. It reports whether the pause has ended.
func (r *Terms) await(ctx context.Context, pause time.Duration) (over bool) {
	r.mu.Lock()
	allowed := r.allowed
	r.mu.Unlock()
	if allowed == nil {
		return false
	}
	select {
	case <-allowed:
	case <-ctx.Done():
	case <-time.After(pause):
		return true
	}
	return false
}
