package transaction

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
)

// Turns let one candidate at a time, on each pool, check a server or take two connections for a session. Without turns each of
// many electors might get one connection, and wait for the other until all give up.
var Turns pooled.Queues

// TakeTurn waits until nobody else takes two connections of the pool, or checks its server.
func TakeTurn(ctx context.Context, pool *sql.DB) (leave func(), err error) {
	_, leave, err = Turns.Take(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("elector: wait for two connections: %w", err)
	}
	return leave, nil
}

// Lend lends a session. That needs two connections, for which candidates take turns. The second one is taken before the session is
// lent: a call of the session has less time than a new connection may take.
func Lend(ctx context.Context, from *election.Source, wary func() bool) (*election.Session, error) {
	leave, err := TakeTurn(ctx, from.Pool())
	if err != nil {
		return nil, err
	}
	defer leave()
	first := New(from, nil, wary)
	if err := first.takeBeside(ctx); err != nil {
		return nil, err
	}
	defer first.drop(false) // unless the session has it
	for n := 1; ; n++ {
		s, err := from.Lend(context.WithValue(ctx, brought{}, &first.aux))
		if err == nil || !wary() || n == MaxServers || !errors.Is(err, pgerr.ErrServerReadOnly) {
			return s, err
		}
	}
}
