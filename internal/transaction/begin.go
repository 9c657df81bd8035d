package transaction

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
)

// ErrOver is returned when a session's transaction has ended on the server.
var ErrOver = fmt.Errorf("%w: the transaction that held the lock has ended on the server", pgerr.ErrSessionLost)

// ErrTwoServers is returned when another connection of the pool does not see the transaction's locks.
var ErrTwoServers = errors.New("elector: the pool leads to two servers, and only one of them has the lock: " +
	"is an address moving in a failover, or does it lead to several primaries?")

// Begin begins a transaction on the connection, within a call, by these statements. A transaction that other code has left open
// is an error. One of our own is rolled back, as when a call is repeated that has begun it: with a transaction that nobody knows,
// database/sql would never close the connection.
func Begin(ctx context.Context, c *pin.Conn, statements ...string) error {
	if c.InTx() {
		_ = c.RollBack()
	}
	err := c.Begin()
	for _, statement := range statements {
		if err == nil {
			err = c.Exec(ctx, statement)
		}
	}
	switch pgerr.State(err) {
	case "25001", "25P02":
		err = pgerr.Wrap(pgerr.ErrOpenTransaction, err)
	case "0A000": // READ WRITE, which lib/pq always asks for, in recovery
		err = pgerr.Wrap(pgerr.ErrServerReadOnly, err)
	}
	return err
}

// NoAnswer says what may be the cause if a transaction does not begin. There may be no pooler.
const NoAnswer = "no answer, or the connection was closed: is the server reachable? A pooler may have no server connection left " +
	"(default_pool_size of PgBouncer), or permit no transactions (docs/runbook.md#behind-a-pooler)"

// Explain says why a transaction did not begin, as far as a pooler may be the cause.
func Explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgerr.ErrNoAnswer), pooled.IsRefusal(err): // which no driver distinguishes
		return fmt.Errorf("elector: begin a transaction: "+NoAnswer+": %w", err)
	}
	return fmt.Errorf("elector: begin a transaction: %w", pgerr.Explain(err))
}

// beginOwn begins a transaction with the session's settings, within a call. If other code has left a transaction open, beginOwn
// finds it: its commit is not ours.
func beginOwn(ctx context.Context, from *election.Source, aux *pin.Conn) error {
	err := Explain(Begin(ctx, aux, db.RepeatableRead, db.ReadCommitted))
	if err == nil {
		err = Apply(ctx, aux, from.Settings())
	}
	return err
}

// Apply applies settings for the rest of the transaction that the connection is in.
func Apply(ctx context.Context, c *pin.Conn, settings []election.Setting) error {
	_, err := c.Queries().ApplySettings(ctx, db.ApplySettingsParams{Settings: election.Encode(settings), OnlyLocal: true})
	return err
}

// lettingGo is the key of a context's value, which says that the question lets a lock go.
type lettingGo struct{}
