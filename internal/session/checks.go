package session

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"
)

// poolChecks are the pools on which a server is being checked: one check at a time on each. A
// check takes two connections; of many electors of one pool each might get one, and wait
// for the other until all give up.
var poolChecks = queues{of: map[*sql.DB]*queue{}}

type queues struct {
	mu sync.Mutex
	of map[*sql.DB]*queue
}

type queue struct {
	n      int           // who check or wait; guarded by queues.mu
	busy   chan struct{} // full while one checks; guards what follows
	last   time.Time     // when the last check began
	good   any           // what passed, with all its settings; nil if it did not
	inside bool          // it passed in transaction scope
}

// share calls one, alone on the pool. It returns the result of another check instead, if one
// for the same began and passed while it waited: two hundred candidates that start at once
// ask the server little more than one would. inside is the scope, and whole is whether the
// server took all settings, so that others need not find out which it refuses.
func (q *queues) share(ctx context.Context, pool *sql.DB, what any, one func() (inside, whole bool, err error)) (inside bool, err error) {
	asked := time.Now()
	its := q.join(pool)
	defer q.leave(pool, its)
	select {
	case its.busy <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("elector: wait to check the server: %w", context.Cause(ctx))
	}
	defer func() { <-its.busy }()
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
