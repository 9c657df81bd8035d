package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/fenced"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/pair"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/queue"
	"github.com/pgelector/pgelector/internal/session"
)

const (
	batchWindow = 5 * time.Millisecond  // campaigns that begin together make one batch
	atBarrier   = 50 * time.Millisecond // between two looks whether a barrier is passed
)

// A worker serves the requests of a shared session, in batches. It is one goroutine, from
// the first request until the session is closed.
type worker struct {
	*Shared
	away time.Time // since when the server cannot be asked; zero if it can
	led  bool      // whether a lock of this session was held when that began

	watched        watched
	barrierTriedAt time.Time // when the first of those that wait at a barrier was last tried
}

func (s *Shared) startWorker() { go backoff.Apart((&worker{Shared: s}).work)() }

func (w *worker) work() {
	defer close(w.worked)
	due := time.NewTimer(backoff.Jitter(w.retry))
	for w.ctx.Err() == nil {
		select {
		case <-w.ctx.Done():
		case <-w.hurried:
			if backoff.Sleep(w.ctx, batchWindow) {
				w.serve((*request).isUrgent)
			}
			if w.isQuick() {
				due.Reset(w.pause())
			}
		case <-w.barrier():
			w.serve((*request).isAtBarrier)
		case <-w.looks():
			w.lookAtLargest()
		case <-due.C:
			w.serve((*request).any)
			due.Reset(w.pause())
		}
	}
}

// isQuick reports whether the batches are quick attempts.
func (w *worker) isQuick() bool { return w.led && time.Since(w.away) < lock.QuickFor }

// pause is the time until the next batch.
func (w *worker) pause() time.Duration {
	if w.isQuick() {
		return backoff.Jitter(lock.Quick)
	}
	return backoff.Jitter(w.retry)
}

// barrier is when to look again whether a barrier is passed; never, if nobody waits at one.
func (w *worker) barrier() <-chan time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(w.requests, (*request).isAtBarrier) {
		return nil
	}
	return time.After(time.Until(w.barrierTriedAt.Add(atBarrier)))
}

// collect takes the requests to be served now, and all whose campaign was cancelled.
func (w *worker) collect(which func(*request) bool) (taken, cancelled []*request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var kept []*request
	for _, r := range w.requests {
		switch {
		case r.ctx.Err() != nil:
			cancelled = append(cancelled, r)
		case which(r):
			taken = append(taken, r)
		default:
			kept = append(kept, r)
		}
	}
	w.requests = kept
	return taken, cancelled
}

// serve makes one batch of attempts.
func (w *worker) serve(which func(*request) bool) {
	requests, cancelled := w.collect(which)
	w.giveBack(cancelled...) // before the same locks are asked for again
	if len(requests) == 0 {
		return
	}
	switch err := w.attempt(requests); {
	case err == nil:
		w.away, w.led = time.Time{}, false
	case w.away.IsZero():
		w.away = time.Now()
		fallthrough
	default:
		w.led = w.led || slices.ContainsFunc(requests, (*request).wasLed)
	}
}

// attempt tries all, verifies all, and passes all barriers. It returns an error if the
// server could not be asked.
func (w *worker) attempt(requests []*request) error {
	if err := w.connect(); err != nil {
		answerAll(requests, reply{err: err})
		return err
	}
	var ask, have []int64
	for _, r := range requests {
		if r.held == w.now {
			have = append(have, r.Key)
		} else { // or it was lost with its session
			ask = append(ask, r.Key)
		}
	}
	held, offers, err := w.tryLocks(ask, have)
	_ = w.source.Keep(context.Background(), w.now) // if that ends the session, so do its calls
	var winners, others []*request
	for _, r := range requests {
		if held[r.Key] {
			r.held = w.now
			winners = append(winners, r)
		} else {
			others = append(others, r)
		}
	}
	var blocked []*request
	for some := range slices.Chunk(winners, barriersAtOnce) {
		blocked = append(blocked, w.elect(some)...)
	}
	w.reject(others, offers, err)
	w.unblock(blocked)
	return err
}

// connect opens a session unless there is one.
func (w *worker) connect() error {
	if w.now != nil && w.now.Context().Err() == nil {
		return context.Cause(w.now.TermContext()) // nil, unless the pool was closed
	}
	if w.now != nil {
		w.now.Close()         // its connections are in the pool's number
		w.source.Invalidate() // it may be another one now
	}
	w.now, w.watched = nil, watched{replaces: w.watched.replaces || w.now != nil}
	err := w.source.Retry(w.ctx, func() error {
		s, err := queue.OpenChecked(w.ctx, w.source)
		if err != nil {
			return err
		}
		s.EvictBy(func() {
			life := LifeKey(w.source.Name, s.PID())
			pooled.Evict(w.source.Pool(), s.PID(), life, life)
		})
		if err = pair.Hold(s, LifeKey(w.source.Name, s.PID()), pair.ErrNameTaken); err != nil {
			s.Fail(err)
			return err
		}
		w.now, w.releases = s, &releases{}
		w.watched.begin()
		w.source.Start(s)
		return nil
	})
	if errors.Is(err, pgerr.ErrSessionPooled) {
		err = fmt.Errorf("%w (a shared session cannot hold its locks inside a transaction; a session for each election can)", err)
	}
	return err
}

// reject answers those that were not granted their lock, with its holder if they look. err
// is what kept the server from granting more.
func (w *worker) reject(others []*request, offers map[int64]bool, err error) {
	var looking []int64
	for _, r := range others {
		if err == nil && r.ReportHolder() {
			looking = append(looking, r.Key)
		}
	}
	holders := holdersOf(w.now, looking)
	if err == nil {
		w.chooseLargest(others)
	}
	for _, r := range others {
		r.answer(reply{holder: holders[r.Key], offered: offers[r.Key], err: err})
	}
}

// barriersAtOnce is how many barriers one statement passes: each takes room in the lock
// table, which by default has some 6,400 to 14,400 places.
const barriersAtOnce = 1000

// elect passes the barriers of those that were granted their lock, and answers them.
// It returns those with a fenced transaction of the last term in flight. The locks
// of those whose campaign was cancelled meanwhile are given back; if the lock table is full,
// so are half of all.
func (w *worker) elect(winners []*request) (blocked []*request) {
	tokens, err := readTokens(w.source, w.now, keysOf(winners), w.epoch)
	for errors.Is(err, pgerr.ErrLockTableFull) {
		half := (len(winners) + 1) / 2
		w.refuse(winners[:half], err)
		if winners = winners[half:]; len(winners) == 0 {
			return nil
		}
		tokens, err = readTokens(w.source, w.now, keysOf(winners), w.epoch)
	}
	if err != nil {
		w.refuse(winners, err)
		return nil
	}
	var cancelled []*request
	for _, r := range winners {
		if token, passed := tokens[r.Key]; !passed {
			blocked = append(blocked, r)
		} else if !r.answer(reply{session: w.now, others: w.releases, token: token}) {
			cancelled = append(cancelled, r)
		}
	}
	w.giveBack(cancelled...)
	return blocked
}

// unblock terminates what is overdue and blocks the requests, by a statement for each, and puts
// them back into the queue. It comes last in a batch, when all others are answered, and takes no
// longer than the next ones may wait: those that are left are the first of the next batch.
func (w *worker) unblock(blocked []*request) {
	asked, until := 0, time.Now().Add(atBarrier)
	for ; asked < len(blocked) && w.ctx.Err() == nil && time.Now().Before(until); asked++ {
		w.terminateOverdue(blocked[asked])
	}
	w.requeue(slices.Concat(blocked[asked:], blocked[:asked]))
}

// terminateOverdue terminates overdue fenced transactions that block a request, or reports
// once that it cannot.
func (w *worker) terminateOverdue(r *request) {
	prepared, err := fenced.TerminateOverdue(context.Background(), w.now, r.Key, w.source.Lease)
	if err = cmp.Or(err, prepared); err != nil && !r.reported {
		r.reported = true
		w.source.Report(r.ctx, session.Campaigning, fmt.Errorf("%w (election %q)", err, r.Election))
	}
}

// requeue has those that wait at their barriers wait for the next look.
func (w *worker) requeue(blocked []*request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range blocked {
		r.urgent = false
	}
	if !slices.ContainsFunc(w.requests, (*request).isAtBarrier) {
		w.barrierTriedAt = time.Now()
	}
	w.requests = append(w.requests, blocked...)
}

// refuse gives the locks back, if the session has them still, and answers with the reason.
func (w *worker) refuse(requests []*request, err error) {
	w.giveBack(requests...)
	answerAll(requests, reply{err: err})
}

// giveBack releases those locks of requests that are not answered that the session holds.
func (w *worker) giveBack(requests ...*request) {
	requests = slices.DeleteFunc(slices.Clone(requests), func(r *request) bool { return w.now == nil || r.held != w.now })
	if len(requests) == 0 || w.now.Context().Err() != nil {
		return
	}
	if err := unlockKeys(w.now, keysOf(requests)...); err != nil {
		w.source.Report(w.ctx, session.Releasing, fmt.Errorf("%w (of %d elections whose campaigns had ended, among them %q)",
			err, len(requests), requests[0].Election))
	}
}
