package preflight

import (
	"context"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/idle"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/transaction"
)

// A probe is a connection of the pool that a check asks. It holds nothing, or what its transaction holds.
type probe struct {
	conn    *pin.Conn
	from    *election.Source
	heard   bool   // the connection has answered
	pid     int32  // of the backend that has answered first
	started string // when its server started
	mark    string // of its transaction
}

// outside lends fn a connection. It goes back to the pool if fn returns nil.
func outside(ctx context.Context, from *election.Source, fn func(*probe) error) error {
	return lend(ctx, from, false, fn)
}

// inside is outside for a connection inside a transaction, which is rolled back.
func inside(ctx context.Context, from *election.Source, fn func(*probe) error) error {
	return lend(ctx, from, true, fn)
}

func lend(ctx context.Context, from *election.Source, begin bool, fn func(*probe) error) error {
	conn, err := from.Take(ctx)
	if err != nil {
		return err
	}
	p := &probe{conn: conn, from: from}
	if begin {
		conn.StayInside()
		err = transaction.Explain(p.call(ctx, func(ctx context.Context, _ *db.Queries) error {
			return transaction.Begin(ctx, conn, db.RepeatableRead, db.ReadCommitted)
		}))
	}
	if err == nil {
		err = fn(p)
	}
	if err == nil && conn.InTx() {
		err = p.rollBack(ctx)
	}
	if err != nil {
		if !conn.Discard(false, false) {
			from.Report("call", fmt.Errorf("elector: the driver does not return from a call on a connection that is given up: "+
				"the connection is left alone, and closed when the driver returns: %w", err))
		}
		return err
	}
	conn.GiveBack()
	return nil
}

// call makes a call on the connection. An answer that takes longer than the validity does not count.
func (p *probe) call(ctx context.Context, call pin.Call) error {
	validity := p.from.Lease.Validity()
	why := fmt.Errorf("%w within %v", pgerr.ErrNoAnswer, validity)
	if !p.heard && !p.conn.StaysInside() {
		validity = min(validity, idle.AnswerWithin)
		why = idle.Silent(validity)
	}
	bounded, cancel := context.WithTimeoutCause(ctx, validity, why)
	defer cancel()
	answered, err := p.conn.Call(bounded, call, nil)
	p.heard = p.heard || answered
	return err
}

// ask asks by one statement.
func ask[A, T any](ctx context.Context, p *probe, statement func(*db.Queries, context.Context, A) (T, error), argument A) (T, error) {
	var value, none T
	err := p.call(ctx, func(ctx context.Context, q *db.Queries) (err error) {
		value, err = statement(q, ctx, argument)
		return err
	})
	if err != nil { // the call may go on, and write the value
		return none, err
	}
	return value, nil
}

// describe asks what the server is. It returns an error if other code has left a transaction open.
func (p *probe) describe(ctx context.Context) (db.DescribeServerRow, error) {
	row, err := ask(ctx, p, func(q *db.Queries, ctx context.Context, _ any) (db.DescribeServerRow, error) {
		return q.DescribeServer(ctx)
	}, nil)
	if err == nil && row.InTransaction && !p.conn.InTx() {
		p.conn.Taint()
		err = pgerr.ErrOpenTransaction
	}
	return row, err
}

// is reports whether that backend has answered first.
func (p *probe) is(pid int32, started string) bool { return p.pid == pid && p.started == started }

// ping sends a statement that no driver prepares.
func (p *probe) ping(ctx context.Context) error {
	return p.call(ctx, func(ctx context.Context, _ *db.Queries) error { return p.conn.Ping(ctx) })
}

// goesOn returns an error unless the probe's transaction goes on.
func (p *probe) goesOn(ctx context.Context) error {
	return p.call(ctx, func(ctx context.Context, _ *db.Queries) error {
		mark, err := p.conn.Show(ctx, db.PingTransaction)
		if pgerr.State(err) == "42704" || err == nil && mark != p.mark {
			err = transaction.ErrOver
		}
		return err
	})
}

func (p *probe) rollBack(ctx context.Context) error {
	return p.call(ctx, func(context.Context, *db.Queries) error { return p.conn.RollBack() })
}

// apply applies settings for the rest of the transaction.
func (p *probe) apply(ctx context.Context, settings []election.Setting) error {
	return p.call(ctx, func(ctx context.Context, _ *db.Queries) error { return transaction.Apply(ctx, p.conn, settings) })
}

// try applies settings in a transaction that it rolls back.
func (p *probe) try(ctx context.Context, settings []election.Setting) error {
	p.heard = true // a pooler may let a transaction wait for a backend: that is no silence
	err := p.call(ctx, func(ctx context.Context, _ *db.Queries) error { return transaction.Begin(ctx, p.conn) })
	if err != nil {
		return err
	}
	err = p.apply(ctx, settings)
	if failed := p.rollBack(ctx); err == nil {
		err = failed
	}
	return err
}

// tryPair takes a lock of two integers until the end of the transaction.
func (p *probe) tryPair(ctx context.Context, key int64) (bool, error) {
	high, low := lockkey.Halves(key)
	return ask(ctx, p, (*db.Queries).TryPair, db.TryPairParams{Inside: true, High: high, Low: low})
}

// isFree reports whether nobody holds a lock of two integers.
func (p *probe) isFree(ctx context.Context, key int64) (bool, error) {
	high, low := lockkey.Halves(key)
	row, err := ask(ctx, p, (*db.Queries).PairIsFree, db.PairIsFreeParams{High: high, Low: low})
	return row.Free, err
}
