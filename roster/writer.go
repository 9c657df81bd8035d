package roster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// cleanUpEvery is how often a roster whose candidate leads cleans up.
const cleanUpEvery = time.Hour

// run is the writing goroutine. It returns after Close, with a last write.
func (r *Roster) run() {
	defer close(r.ended)
	interval := time.NewTimer(spread(r.interval))
	defer interval.Stop()
	var cleanUp time.Time // the earliest time
	for {
		wake := r.wake
		if r.Stats().Err != nil {
			wake = nil // retry at the next interval only
		}
		select {
		case <-wake:
			r.recordChecks()
			_ = r.write(false)
			continue
		case <-interval.C:
		case <-r.closing:
			r.leaveAll()
			_ = r.write(false)
			return
		}
		r.recordChecks()
		if r.write(true) == nil && time.Now().After(cleanUp) && r.leads() {
			cleanUp = time.Now().Add(spread(cleanUpEvery))
			r.cleanUp()
		}
		interval.Reset(spread(r.interval)) // after the write: slow writes are less frequent
	}
}

// spread returns d, varied by up to a tenth.
func spread(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

func (r *Roster) leads() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.leads()
}

func (r *Roster) leaveAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.ledger.present {
		r.ledger.leave(k)
	}
}

// write writes what waits. If all is true it publishes every candidate, else only new ones.
func (r *Roster) write(all bool) error {
	r.mu.Lock()
	r.ledger.expire(time.Now())
	b := r.ledger.batch(all)
	metadata := r.metadata
	overflow := r.overflow
	r.overflow = 0
	r.mu.Unlock()
	if overflow > 0 {
		r.reportError(fmt.Errorf("%w: %d of them, because %d wait to be written already", ErrDropped, overflow, maxWaiting))
	}
	if b.empty() {
		return nil
	}
	err := r.call(r.timeout, func(ctx context.Context) error { return r.send(ctx, b, metadata) })
	r.mu.Lock()
	r.stats.Err = err
	if err == nil {
		r.stats.Writes++
		r.ledger.wrote(b)
	} else {
		r.stats.Failures++
	}
	r.mu.Unlock()
	r.reportError(err)
	return err
}

// call runs do on a separate goroutine, because on a dead link a driver call may not
// return when its context ends. Only one call runs at a time.
func (r *Roster) call(timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, fmt.Errorf("no answer within %v: %w", timeout, context.DeadlineExceeded))
	select {
	case <-r.idle:
	case <-ctx.Done():
		cancel()
		return ErrStuck
	}
	answered := make(chan error, 1)
	go func() {
		defer func() { r.idle <- struct{}{} }()
		defer cancel()
		err := do(ctx)
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("roster: %w: %w", context.Cause(ctx), err)
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		select {
		case err := <-answered: // in time after all
			return err
		default:
			return fmt.Errorf("roster: %w", context.Cause(ctx))
		}
	}
}

// cleanUp is the automatic clean-up. It may take one interval, which makes no candidate
// silent.
func (r *Roster) cleanUp() {
	err := r.call(r.interval, func(ctx context.Context) error {
		_, err := r.CleanUp(ctx)
		return err
	})
	if err == nil {
		return
	}
	r.mu.Lock()
	r.stats.Failures++
	r.mu.Unlock()
	r.reportError(err)
}

// recordChecks records the last health check of each candidate whose elector was added.
func (r *Roster) recordChecks() {
	r.mu.Lock()
	electors := slices.Clone(r.electors)
	r.mu.Unlock()
	for _, e := range electors {
		health := e.Health()
		if health.At.IsZero() {
			continue
		}
		o := hooks.Origin{Election: e.Election(), Key: e.Key(), CandidateID: e.CandidateID()}
		r.mu.Lock()
		r.ledger.checked(o, health.Score, health.At, time.Now())
		r.mu.Unlock()
	}
}

// reportError calls the function of WithOnError.
func (r *Roster) reportError(err error) {
	if err == nil || r.onError == nil {
		return
	}
	defer func() { _ = recover() }()
	r.onError(err)
}
