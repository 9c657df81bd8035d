package pooled

import (
	"context"
	"database/sql"
	"sync"
)

// Queues has one queue for each pool, while anybody is busy or waits there. The zero value is ready.
type Queues struct {
	mu sync.Mutex
	of map[*sql.DB]*Queue
}

// A Queue is the queue of one pool.
type Queue struct {
	n    int           // how many are busy or wait; guarded by Queues.mu
	busy chan struct{} // full while one is busy

	Shared any // what the last caller has left for the next; only the caller that is busy may use it
}

// Take waits until nobody else is busy on the pool. If ctx ends first it returns the cause.
func (q *Queues) Take(ctx context.Context, pool *sql.DB) (its *Queue, leave func(), err error) {
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

func (q *Queues) join(pool *sql.DB) *Queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	its := q.of[pool]
	if its == nil {
		if q.of == nil {
			q.of = map[*sql.DB]*Queue{}
		}
		its = &Queue{busy: make(chan struct{}, 1)}
		q.of[pool] = its
	}
	its.n++
	return its
}

func (q *Queues) leave(pool *sql.DB, its *Queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if its.n--; its.n == 0 {
		delete(q.of, pool)
	}
}
