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
	n      int           // who are busy or wait; guarded by queues.mu
	busy   chan struct{} // full while one is; guards what follows
	last   time.Time     // when the last check began
	good   any           // what passed, with all its settings; nil if it did not
	inside bool          // it passed in transaction scope
}

// share calls one, alone on the pool. If an equal check began and passed while share waited,
// it returns that result: two hundred candidates that start at once ask the server little more
// than one would. inside is the scope, and whole is whether the server took all settings, so
// that others need not find out which it refuses.
func (q *queues) share(ctx context.Context, pool *sql.DB, what any, one func() (inside, whole bool, err error)) (inside bool, err error) {
	asked := time.Now()
	its, leave, err := q.alone(ctx, pool)
	if err != nil {
		return false, fmt.Errorf("elector: wait to check the server: %w", err)
	}
	defer leave()
	if its.good == what && its.last.After(asked) {
		return its.inside, nil
	}
	its.last, its.good = time.Now(), nil
	inside, whole, err := one()
	if err == nil && whole {
		its.good, its.inside = what, inside
	}
	return inside, err
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
