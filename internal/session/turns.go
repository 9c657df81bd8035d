package session

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
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
	turn chan struct{}
	n    int // that have it or wait for it
}

// enter waits for the pool's turn, which leave ends.
func (q *queues) enter(ctx context.Context, pool *sql.DB) (leave func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.of[pool]
	if one == nil {
		one = &queue{turn: make(chan struct{}, 1)}
		q.of[pool] = one
	}
	one.n++
	q.mu.Unlock()
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done():
		err = fmt.Errorf("elector: wait to check the server: %w", context.Cause(ctx))
	}
	q.mu.Lock()
	done := func() {
		if one.n--; one.n == 0 {
			delete(q.of, pool)
		}
	}
	if err != nil {
		done()
		return nil, err
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		<-one.turn
		done()
	}, nil
}
