package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pooled"
)

// maxCalls bounds the calls that are stuck in the driver. Each may hold a pooled
// connection.
const maxCalls = 3

// answer is the server's answer.
type answer struct {
	at      time.Time // when it came
	leaders map[int64]db.LeadersRow
	err     error // why the leaders are unknown
}

// question is a question to the server.
type question struct {
	about  int           // the value of Monitor.changes
	done   chan struct{} // closed when answer is set
	answer *answer
}

// ask returns the server's answer, or the cached one. It waits until ctx ends, and no
// longer than the timeout.
func (m *Monitor) ask(ctx context.Context) *answer {
	q := m.join()
	select {
	case <-q.done:
		return q.answer
	case <-ctx.Done():
		return &answer{err: context.Cause(ctx)}
	}
}

// join returns a question that is answered or being asked, or asks a new one.
func (m *Monitor) join() *question {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.known != nil && time.Since(m.known.at) < m.cache:
		return answered(m.known)
	case m.asking != nil && m.asking.about == m.changes:
		return m.asking
	case m.calls >= maxCalls:
		return answered(&answer{err: fmt.Errorf("the last %d calls of the driver have not returned", m.calls)})
	}
	q := &question{about: m.changes, done: make(chan struct{})}
	m.asking = q
	m.calls++
	go m.pursue(q, keysOf(m.electors))
	return q
}

func answered(a *answer) *question {
	q := &question{done: make(chan struct{}), answer: a}
	close(q.done)
	return q
}

// pursue asks the server. It gives up after the timeout, even if the driver does not
// return.
func (m *Monitor) pursue(q *question, keys string) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), m.timeout, errors.New("the server did not answer"))
	defer cancel()
	rows, err := backoff.Await(ctx, func(ctx context.Context) ([]db.LeadersRow, error) {
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.calls--
		}()
		return pooled.Ask(ctx, m.pool, func(q db.DBTX) ([]db.LeadersRow, error) { return db.New(q).Leaders(ctx, keys) })
	})
	q.answer = newAnswer(rows, err)
	if ctx.Err() != nil && q.answer.err != nil {
		q.answer.err = fmt.Errorf("no answer within %v: %w", m.timeout, q.answer.err)
	}
	q.answer.at = time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.about == m.changes {
		m.known = q.answer
	}
	if m.asking == q {
		m.asking = nil
	}
	close(q.done)
}

func newAnswer(rows []db.LeadersRow, err error) *answer {
	a := &answer{err: err, leaders: map[int64]db.LeadersRow{}}
	for _, row := range rows {
		a.leaders[row.Key] = row
	}
	return a
}

// keysOf returns the elections' keys as an argument of the Leaders statement.
func keysOf(electors []*elector.Elector) string {
	keys := make([]int64, len(electors))
	for i, e := range electors {
		keys[i] = e.Key()
	}
	return db.Keys(keys...)
}
