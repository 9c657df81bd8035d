package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/fenced"
	"github.com/pgelector/pgelector/internal/pgerr"
)

const (
	batchWindow = 5 * time.Millisecond  // campaigns that begin together make one batch
	atBarrier   = 50 * time.Millisecond // between two checks whether a barrier is passed
)

// A worker serves the requests of a shared session, in batches. It is one goroutine, from
// the first request until the session is closed.
type worker struct {
	*Shared
	away time.Time // since when the server cannot be asked; zero if it can
	led  bool      // whether a lock of this session was held when that began

	watched        watched
	barrierTriedAt time.Time // when the first request that waits at a barrier was last tried
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
func (w *worker) isQuick() bool { return w.led && time.Since(w.away) < election.QuickFor }

// pause is the time until the next batch.
func (w *worker) pause() time.Duration {
	if w.isQuick() {
		return backoff.Jitter(election.Quick)
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
	w.giveUp(cancelled...) // before the same locks are asked for again
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

// attempt tries all locks, and confirms those that were granted. It returns an error if the server could not be asked.
func (w *worker) attempt(requests []*request) error {
	if err := w.connect(); err != nil {
		w.fail(requests, err)
		return err
	}
	var asking, winners, others []*request
	for _, r := range requests {
		if r.holds(w.now) {
			winners = append(winners, r)
		} else { // or its lock was lost with its session
			asking = append(asking, r)
		}
	}
	granted, others, err := w.try(asking)
	if err == nil {
		winners = append(winners, granted...)
	} else {
		others = append(others, asking...)
	}
	_ = w.source.MayKeep(context.Background(), w.now) // if that ends the session, so do its calls
	blocked := w.confirm(winners)
	w.reject(others, err)
	w.unblock(blocked)
	return err
}

// try tries the locks. It returns the requests whose lock was granted or is busy, and answers those whose lock was refused.
func (w *worker) try(asking []*request) (granted, busy []*request, err error) {
	if len(asking) == 0 {
		return nil, nil, nil
	}
	wants := make([]election.Want, len(asking))
	for i, r := range asking {
		wants[i] = r.want
	}
	locks, tried, err := w.now.Try(context.Background(), wants...) // cancelling would leave in doubt what all others hold
	if err != nil {
		return nil, nil, err
	}
	for i, r := range asking {
		switch r.lock = locks[i]; {
		case r.lock != nil:
			granted = append(granted, r)
		case tried[i].Err != nil:
			w.fail([]*request{r}, tried[i].Err)
		default:
			busy = append(busy, r)
		}
	}
	return granted, busy, nil
}

// fail answers requests with an error. While the batches are quick, the next batch comes in time for the next attempt; otherwise
// each campaign waits as after any failure.
func (w *worker) fail(requests []*request, err error) {
	a := w.source.Fail(err)
	a.Paced = (w.led || slices.ContainsFunc(requests, (*request).wasLed)) && (w.away.IsZero() || time.Since(w.away) < election.QuickFor)
	for _, r := range requests {
		r.answer(a)
	}
}

// connect opens a session unless there is one.
func (w *worker) connect() error {
	if w.now != nil && w.now.Context().Err() == nil {
		return context.Cause(w.now.TermContext()) // nil, unless the pool was closed
	}
	replaces := w.now != nil
	if replaces {
		w.now.Close() // its connections are in the pool's number
		w.source.Invalidate()
	}
	w.now, w.watched = nil, watched{replaces: w.watched.replaces || replaces}
	err := w.source.Retry(w.ctx, func() error {
		s, err := w.source.Open(w.ctx)
		if err == nil {
			w.now = s
			w.watched.begin()
		}
		return err
	})
	if errors.Is(err, pgerr.ErrSessionPooled) {
		err = fmt.Errorf("%w (a shared session cannot hold its locks inside a transaction; a session for each election can)", err)
	}
	return err
}

// reject answers the requests whose lock was not granted, and names the holder to those that
// look. err says why the server did not answer; nil if it did.
func (w *worker) reject(others []*request, err error) {
	if err != nil {
		w.fail(others, err)
		return
	}
	var looking []int64
	for _, r := range others {
		if r.want.Look {
			looking = append(looking, r.want.Key)
		}
	}
	holders := w.holdersOf(looking)
	w.chooseLargest(others)
	offers := w.now.Answerer().(*Statements).offers
	for _, r := range others {
		r.answer(election.Attempt{Outcome: election.Busy, Holder: holders[r.want.Key], Named: offers[r.want.Key], BusyAt: time.Now()})
	}
}

// holdersOf returns the holders of the locks that are held. It returns none if the server cannot
// be asked: the next statement on the session finds that too.
func (w *worker) holdersOf(keys []int64) map[int64]election.Holder {
	if len(keys) == 0 {
		return nil
	}
	rows, _ := election.Ask(context.Background(), w.now, (*db.Queries).Leaders, db.Keys(keys...))
	holders := map[int64]election.Holder{}
	for _, row := range rows {
		holders[row.Key] = election.Holder{PID: row.Pid, CandidateID: row.ApplicationName}
	}
	return holders
}

// confirm confirms locks, and answers their requests. It returns the requests that wait for a fenced transaction of the last term.
// It gives up the locks of requests whose campaign was cancelled meanwhile.
func (w *worker) confirm(winners []*request) (blocked []*request) {
	if len(winners) == 0 {
		return nil
	}
	locks := make([]*election.Lock, len(winners))
	for i, r := range winners {
		locks[i] = r.lock
	}
	refused, err := w.now.Confirm(context.Background(), locks...)
	if err != nil {
		w.fail(winners, err)
		return nil
	}
	var unwanted, failed []*request
	for _, r := range winners {
		switch err := refused[r.lock]; {
		case err != nil:
			failed = append(failed, r)
		case r.lock.IsWaiting():
			blocked = append(blocked, r)
		case !r.answer(election.Attempt{Outcome: election.Granted, Lock: r.lock}):
			unwanted = append(unwanted, r)
		}
	}
	w.giveUp(slices.Concat(unwanted, failed)...)
	for _, r := range failed {
		w.fail([]*request{r}, refused[r.lock])
	}
	return blocked
}

// giveUp releases the locks of requests that nobody wants any more.
func (w *worker) giveUp(requests ...*request) {
	var locks []*election.Lock
	name := ""
	for _, r := range requests {
		if r.lock != nil {
			locks, name = append(locks, r.lock), r.name
		}
	}
	if err := election.GiveUp(locks...); err != nil {
		w.source.Report("release", fmt.Errorf("%w (of %d elections whose campaigns had ended, among them %q)", err, len(locks), name))
	}
}

// unblock terminates overdue transactions that block the requests, by one statement for each request,
// and puts the requests back into the queue. It runs last in a batch, when all other requests are
// answered, and for no longer than atBarrier: requests that are left come first in the next batch.
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
	prepared, err := fenced.TerminateOverdueOn(context.Background(), w.now, r.want.Key)
	if err = cmp.Or(err, prepared); err != nil && !r.reported {
		r.reported = true
		w.source.Report("report", fmt.Errorf("%w (election %q)", err, r.name))
	}
}

// requeue puts requests that wait at their barriers back into the queue, for the next look.
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
