package session

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"
)

// turns are those of the pools on which a server is being checked: one check at a
// time on each. A check takes two connections, and of many electors of one pool each
// might get one, and wait for the other until all give up.
var turns = queues{of: map[*sql.DB]*queue{}}

type queues struct {
	mu sync.Mutex
	of map[*sql.DB]*queue
}

type queue struct {
	n    int           // that check or wait; guarded by queues.mu
	turn chan struct{} // is full while one checks, and guards what follows
	last time.Time     // when the last check began
	good Lease         // with whose settings, all of them, that check passed; zero if it did not
}

// check has one check the server when it is its turn. That is not needed if a check
// with the same lease began and passed while it waited: two hundred candidates that
// start at once ask the server little more than one would. whole is whether the
// server took all settings, so that others need not find out which it refuses.
func (q *queues) check(ctx context.Context, pool *sql.DB, lease Lease, one func() (whole bool, err error)) error {
	asked := time.Now()
	its := q.join(pool)
	defer q.leave(pool, its)
	select {
	case its.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("elector: wait to check the server: %w", context.Cause(ctx))
	}
	defer func() { <-its.turn }()
	if its.good == lease && its.last.After(asked) {
		return nil
	}
	its.last, its.good = time.Now(), Lease{}
	whole, err := one()
	if err == nil && whole {
		its.good = lease
	}
	return err
}

func (q *queues) join(pool *sql.DB) *queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	its := q.of[pool]
	if its == nil {
		its = &queue{turn: make(chan struct{}, 1)}
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
