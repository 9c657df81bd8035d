package examples

import (
	"context"
	"sync"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// Warm loads a cache while this candidate is the deputy, and hands it to the leader's work.
// Other followers load nothing. Give it to elector.WithHooks, and call its Run instead of the elector's.
type Warm[T any] struct {
	Load func(context.Context) (T, error)

	mu      sync.Mutex
	loading *loading[T]
}

// loading is one call of Load.
type loading[T any] struct {
	done   chan struct{} // closed when Load has returned
	stop   context.CancelFunc
	loaded T
	err    error
}

// OnCampaign implements hooks.CampaignHook. It begins to load when this candidate becomes the
// deputy, and stops, or drops what was loaded, when it no longer is.
func (w *Warm[T]) OnCampaign(ctx context.Context, c hooks.Campaign) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case c.Outcome == hooks.Granted: // Lead takes it
	case c.Deputy:
		w.begin(ctx)
	default:
		w.drop()
	}
}

func (w *Warm[T]) drop() {
	if w.loading != nil {
		w.loading.stop()
		w.loading = nil
	}
}

func (w *Warm[T]) begin(ctx context.Context) *loading[T] {
	if w.loading == nil {
		ctx, stop := context.WithCancel(ctx)
		l := &loading[T]{done: make(chan struct{}), stop: stop}
		w.loading = l
		go func() {
			defer close(l.done)
			l.loaded, l.err = w.Load(ctx)
		}()
	}
	return w.loading
}

// Run is Run of the elector. It calls work with what the deputy has loaded, or loads it. What changed
// since is missing: work must read that. The loading ends with Run.
func (w *Warm[T]) Run(ctx context.Context, e *elector.Elector, work func(context.Context, *elector.Term, T) error) error {
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drop()
	}()
	return e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
		w.mu.Lock()
		l := w.begin(context.WithoutCancel(ctx))
		w.loading = nil // the next term loads anew
		w.mu.Unlock()
		defer func() {
			l.stop()
			<-l.done
		}()
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil
		}
		if l.err != nil {
			return l.err
		}
		return work(ctx, term, l.loaded)
	})
}
