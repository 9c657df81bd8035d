package session

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"
)

// poolChecks are the pools on which a server is being checked, or two connections are being
// taken for a session: one at a time on each. Of many electors of one pool each might get one
// connection, and wait for the other until all give up.
var poolChecks = queues{of: map[*sql.DB]*queue{}}

type queues struct {
	mu sync.Mutex
	of map[*sql.DB]*queue
}

type queue struct {
	n     int           // who are busy or wait; guarded by queues.mu
	busy  chan struct{} // full while one is; guards what follows
	last  time.Time     // when the last check began
	good  any           // what passed, with all its settings; nil if it did not
	found finding       // by the check that passed
}

// A finding is what a check finds.
type finding struct {
	inside bool  // it passed in transaction scope
	whole  bool  // the server took all settings, so that others need not find out which it refuses
	deaf   error // why the driver's connections cannot be waited on; nil if they can
}

// share calls one, alone on the pool. If an equal check began and passed while share waited,
// it returns that result: two hundred candidates that start at once ask the server little more
// than one would.
func (q *queues) share(ctx context.Context, pool *sql.DB, what any, one func() (finding, error)) (found finding, err error) {
	asked := time.Now()
	its, leave, err := q.alone(ctx, pool)
	if err != nil {
		return found, fmt.Errorf("elector: wait to check the server: %w", err)
	}
	defer leave()
	if its.good == what && its.last.After(asked) {
		return its.found, nil
	}
	its.last, its.good = time.Now(), nil
	found, err = one()
	if err == nil && found.whole {
		its.good, its.found = what, found
	}
	return found, err
}

// alone waits until nobody else is busy on the pool.
func (q *queues) alone(ctx context.Context, pool *sql.DB) (its *queue, leave func(), err error) {
	its = q.join(pool)
	select {
	case its.busy <- struct{}{}:
	case <-ctx.Done():
		q.leave(pool, its)
		return nil, nil, context.Cause(ctx)
	}
	return its, func() {
		<-its.busy
		q.leave(pool, its)
	}, nil
}

func (q *queues) join(pool *sql.DB) *queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	its := q.of[pool]
	if its == nil {
		its = &queue{busy: make(chan struct{}, 1)}
		q.of[pool] = its
	}
	its.n++
	return its
}

func (q *queues) leave(pool *sql.DB, its *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if its.n--; its.n == 0 {
		delete(q.of, pool)
	}
}
