package roster

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// cleanUpEvery is how often a roster whose candidate leads cleans up.
const cleanUpEvery = time.Hour

// run is the roster's goroutine. It ends when Close is called, with a last write.
func (r *Roster) run() {
	defer close(r.ended)
	interval := time.NewTimer(spread(r.interval))
	defer interval.Stop()
	var cleanUp time.Time // not before
	for {
		wake := r.wake
		if r.Stats().Err != nil {
			wake = nil // what failed is tried again at the next interval, and not before
		}
		select {
		case <-wake:
			_ = r.write(false)
			continue
		case <-interval.C:
		case <-r.closing:
			r.leaveAll()
			_ = r.write(false)
			return
		}
		if r.write(true) == nil && time.Now().After(cleanUp) && r.leads() {
			cleanUp = time.Now().Add(spread(cleanUpEvery))
			r.cleanUp()
		}
		interval.Reset(spread(r.interval)) // only now: what takes long is done less often
	}
}

// spread is d, or up to a tenth more or less.
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
	for w := range r.ledger.present {
		r.ledger.leave(w)
	}
}

// write writes what waits, and with all every candidate.
func (r *Roster) write(all bool) error {
	health := r.askHealth()
	r.mu.Lock()
	r.ledger.expire(time.Now())
	b := r.ledger.batch(all)
	note := publication{version: r.version, metadata: r.metadata, health: health}
	overflow := r.overflow
	r.overflow = 0
	r.mu.Unlock()
	if overflow > 0 {
		r.tell(fmt.Errorf("%w: %d, because %d wait to be written already", ErrDropped, overflow, maxWaiting))
	}
	if b.empty() {
		return nil
	}
	err := r.call(r.timeout, func(ctx context.Context) error { return r.send(ctx, b, note) })
	r.mu.Lock()
	r.stats.Err = err
	if err == nil {
		r.stats.Writes++
		r.ledger.wrote(b)
	} else {
		r.stats.Failures++
	}
	r.mu.Unlock()
	r.tell(err)
	return err
}

// call makes a driver call on a goroutine of its own, because on a dead link it
// may not return when its context ends. Another is made only when it has.
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
		case err := <-answered: // the call ended in time, and then its context
			return err
		default:
			return fmt.Errorf("roster: %w", context.Cause(ctx))
		}
	}
}

// cleanUp is the automatic one. It may take one interval: no candidate is silent
// by that.
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
	r.tell(err)
}

// askHealth is the health of this process, nil if it is not known.
func (r *Roster) askHealth() (health *float64) {
	if r.health == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			health = nil
			r.tell(fmt.Errorf("%w: %v", ErrHealth, p))
		}
	}()
	h := r.health()
	if math.IsNaN(h) || math.IsInf(h, 0) {
		return nil
	}
	return &h
}

// tell calls the user's function.
func (r *Roster) tell(err error) {
	if err == nil || r.onError == nil {
		return
	}
	defer func() { _ = recover() }() // there is nobody left to tell
	r.onError(err)
}
