package shared

import (
	"cmp"
	"slices"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/transaction"
)

// A shared session that follows watches the session that leads: it often checks whether that
// session's life lock is free. If so, it tries all the locks at once. If several sessions lead,
// it watches the one that holds most locks; the next batch finds the end of the others.

const (
	chooseEvery = 10 * time.Second
	repeatFor   = 3 // batches after the end of the watched or of the own session: the server frees thousands of locks one by one
)

// watched is the other session that holds most of the locks that this session asks for.
type watched struct {
	key     int64     // of its life lock; 0 if there is none to look at
	chosen  time.Time // last
	looked  time.Time // last
	repeats int       // of the batch that followed its end, or the end of the own session

	replaces bool // the next own session replaces one
}

// begin begins to watch by a new session. If the new session replaces another, the first batch is
// repeated: the server may still hold the locks of the other.
func (l *watched) begin() {
	if l.replaces {
		*l = watched{looked: time.Now(), repeats: repeatFor}
	}
}

// looks is when to look again; never, if there is nothing to look at.
func (w *worker) looks() <-chan time.Time {
	if w.watched.key == 0 && w.watched.repeats == 0 {
		return nil
	}
	return time.After(time.Until(w.watched.looked.Add(cmp.Or(w.look, election.Quick))))
}

// isAsked reports whether any campaign waits for a batch.
func (w *worker) isAsked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests) > 0
}

// lookAtLargest makes a batch if the session that held most locks has ended.
func (w *worker) lookAtLargest() {
	l := &w.watched
	l.looked = time.Now()
	switch {
	case !w.isAsked():
		l.repeats = 0
		return
	case l.repeats > 0:
		l.repeats--
	case w.isFree(l.key):
		*l = watched{looked: l.looked, repeats: repeatFor}
	default:
		return
	}
	w.serve((*request).any)
}

// chooseLargest finds the session that holds most of the locks that this session asks for: the
// locks of requests, and of the requests that wait in the queue.
func (w *worker) chooseLargest(requests []*request) {
	l := &w.watched
	if w.look == 0 || len(requests) == 0 || time.Since(l.chosen) < chooseEvery {
		return
	}
	w.mu.Lock()
	keys := keysOf(slices.DeleteFunc(slices.Concat(requests, w.requests), (*request).isAtBarrier))
	w.mu.Unlock()
	rows, err := election.Ask(w.ctx, w.now, (*db.Queries).LargestHolder, db.Keys(keys...))
	if err != nil || len(rows) == 0 {
		return
	}
	l.chosen, l.looked = time.Now(), time.Now()
	switch key := LifeKey(rows[0].ApplicationName, rows[0].Pid); {
	case key == l.key:
	case w.isFree(key): // the holder has no life lock, as on a session of its own; or it has just ended
		l.repeats = max(l.repeats, 1)
	default:
		l.key = key
	}
}

// isFree reports whether nobody holds the life lock. It reports false if the server cannot be
// asked: the next batch finds that too.
func (w *worker) isFree(key int64) bool {
	free, err := transaction.PairIsFree(w.ctx, w.now, key)
	return err == nil && free
}
