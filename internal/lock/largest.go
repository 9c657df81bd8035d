package lock

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/session"
)

// A shared session follows another that holds the locks: it looks often whether that one's
// life lock is free. Then it tries all the locks at once. Of several that hold locks, it
// looks at the one that holds most; the end of the others is found by the next batch.

const (
	chooseEvery = 10 * time.Second // while the largest holder has no life lock, as on a session of its own
	repeatFor   = 3                // batches after the end, because the server frees thousands of locks one by one
)

// largest is the session that holds most of the locks that this one asks for.
type largest struct {
	key     int64 // of its life lock; 0 if there is none to look at
	chosen  time.Time
	repeats int // of the batch that followed its end
}

// looks is when to look again; never, if there is nothing to look at.
func (w *worker) looks() <-chan time.Time {
	if w.largest.key == 0 && w.largest.repeats == 0 {
		return nil
	}
	return time.After(w.look)
}

// isAsked reports whether any campaign waits for a batch.
func (w *worker) isAsked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests) > 0
}

// lookAtLargest makes a batch if the session that held most locks has ended.
func (w *worker) lookAtLargest() {
	l := &w.largest
	switch {
	case !w.isAsked():
		return
	case l.repeats > 0:
		l.repeats--
	case w.isFree(l.key):
		*l = largest{repeats: repeatFor}
	default:
		return
	}
	w.serve((*request).any)
}

// chooseLargest finds the session that holds most of the locks of those requests, unless
// one was chosen.
func (w *worker) chooseLargest(requests []*request) {
	if w.look == 0 || w.largest.key != 0 || len(requests) == 0 || time.Since(w.largest.chosen) < chooseEvery {
		return
	}
	rows, err := session.Do(w.ctx, w.now, func(ctx context.Context, q *db.Queries) ([]db.LargestHolderRow, error) {
		return q.LargestHolder(ctx, db.Keys(keysOf(requests)...))
	})
	if err != nil || len(rows) == 0 {
		return
	}
	w.largest.chosen = time.Now()
	if key := session.LifeKey(rows[0].ApplicationName, rows[0].Pid); !w.isFree(key) {
		w.largest.key = key
	}
}

// isFree reports whether nobody holds the life lock. If the server cannot be asked, which
// the next batch finds too, it reports false.
func (w *worker) isFree(key int64) bool {
	high, low := session.Halves(key)
	row, err := session.Do(w.ctx, w.now, func(ctx context.Context, q *db.Queries) (db.PairIsFreeRow, error) {
		return q.PairIsFree(ctx, db.PairIsFreeParams{High: high, Low: low})
	})
	return err == nil && row.Free
}
