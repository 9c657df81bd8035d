package connect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// ErrConnect is returned if the server could not be reached or refused the login.
var ErrConnect = errors.New("could not connect")

// Purpose is the purpose of a pool.
type Purpose int

const (
	// Election is for an elector. The pool has the driver's defaults.
	Election Purpose = iota
	// Inspection is for questions. Each is one round trip, and so works through a pooler
	// in any mode.
	Inspection
)

// Open returns a pool for the target. It does not connect.
func (t *Target) Open(p Purpose) (*sql.DB, error) {
	if t.Driver == PQ {
		c := t.pq.Clone()
		c.BinaryParameters = p == Inspection
		connector, err := pq.NewConnectorConfig(c)
		if err != nil {
			return nil, t.unusable(err)
		}
		return sql.OpenDB(connector), nil
	}
	c := t.pgx.Copy()
	if p == Inspection && c.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return stdlib.OpenDB(*c), nil
}

// Check connects once, and fails within the timeout.
func (t *Target) Check(ctx context.Context, pool *sql.DB, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	_, err := backoff.Await(ctx, func(ctx context.Context) (any, error) { return nil, pool.PingContext(ctx) })
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return t.Failed(err)
}

// SQLSTATEs of refusals other than class 28.
const (
	noSuchDatabase  = "3D000"
	noPrivilege     = "42501"
	noSuchParameter = "42704" // in the DSN
)

// Failed explains an error of a question. It wraps ErrConnect if the server was not reached
// or refused the login.
func (t *Target) Failed(err error) error {
	switch state := pgerr.State(err); {
	case err == nil:
		return nil
	case state == noPrivilege:
		return err
	case Refused(err):
		return fmt.Errorf("%w to %s (found by %s): the server refuses: %w", ErrConnect, t, t.Source, err)
	case state == "" || strings.HasPrefix(state, "08") || strings.HasPrefix(state, "53") || strings.HasPrefix(state, "57"):
		return fmt.Errorf("%w to %s (found by %s): %w", ErrConnect, t, t.Source, err)
	}
	return err
}

// Refused reports whether the server refuses the login, so that retries are useless: a wrong
// password, role or database, a missing privilege, an unknown parameter. (For the first
// three pgbouncer returns 08P01, which is not recognized.)
func Refused(err error) bool {
	switch state := pgerr.State(err); state {
	case noSuchDatabase, noPrivilege, noSuchParameter:
		return true
	default:
		return strings.HasPrefix(state, "28")
	}
}

// Connect opens one connection with pgx, for any chosen driver, to use the protocol
// directly. Its statements work through a pooler in any mode.
func (t *Target) Connect(ctx context.Context) (*pgx.Conn, error) {
	c := t.pgx.Copy()
	c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return pgx.ConnectConfig(ctx, c)
}
