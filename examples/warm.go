package examples

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// Warm loads a cache while this candidate is the deputy, and hands it to the leader's work.
// Other followers load nothing. Give it to elector.WithHooks, and call its Run instead of the elector's.
type Warm[T any] struct {
	Load func(context.Context) (T, error) // it bounds its own time

	mu      sync.Mutex
	loading *loading[T]
}

// loading is one call of Load.
type loading[T any] struct {
	stop   context.CancelFunc
	done   chan struct{} // closed when Load has returned
	failed atomic.Bool
	loaded T
}

// OnCampaign implements hooks.CampaignHook, which a deputy calls once per heartbeat interval. Load begins when this candidate
// becomes the deputy, and again if it failed. What was loaded is dropped when another candidate is the deputy.
func (w *Warm[T]) OnCampaign(ctx context.Context, c hooks.Campaign) {
	if c.Deputy {
		w.begin(ctx)
	} else if c.Outcome == hooks.Busy { // not while the database is away, after which this candidate may lead
		w.drop()
	}
}

func (w *Warm[T]) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loading != nil {
		w.loading.stop()
		w.loading = nil
	}
}

// begin returns the call of Load that goes on or has succeeded. If there is none, it begins one.
func (w *Warm[T]) begin(ctx context.Context) *loading[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loading != nil && !w.loading.failed.Load() {
		return w.loading
	}
	l := &loading[T]{done: make(chan struct{})}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(l.done)
		loaded, err := w.Load(ctx)
		if l.loaded = loaded; err != nil {
			l.failed.Store(true)
			slog.WarnContext(ctx, "cache not loaded", "stopped", ctx.Err() != nil, "error", err)
		}
	}()
	w.loading = l
	return l
}

// Run is Run of the elector. It calls work with what the deputy has loaded, or loads it, as often as
// that fails. What changed since is missing: work must read that. The loading ends with the term and with Run.
func (w *Warm[T]) Run(ctx context.Context, e *elector.Elector, work func(context.Context, *elector.Term, T) error) error {
	defer w.drop()
	return e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
		defer w.drop() // the next term loads anew
		for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 10*time.Second) {
			l := w.begin(ctx)
			context.AfterFunc(ctx, l.stop)
			if <-l.done; !l.failed.Load() {
				return work(ctx, term, l.loaded)
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		return nil
	})
}
