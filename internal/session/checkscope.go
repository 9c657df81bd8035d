package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// checkScope checks the server, and chooses the scope.
func (v *Server) checkScope(ctx context.Context) error {
	var pooled error
	if !v.InTransaction() && !v.pooled {
		pooled = v.checkServer(ctx)
		if v.Scope == SessionScope || !errors.Is(pooled, ErrSessionPooled) {
			return pooled
		}
	}
	if v.LongestLease > 0 {
		v.pooled = false
		return fmt.Errorf("%w: a leader inside a transaction cannot wait for synchronous standbys", ErrSessionPooled)
	}
	named, err := v.checkTransactions(ctx)
	v.pooled = ctx.Err() != nil // if ctx has ended, the next check goes on here; else it starts over
	// Temporary, as when the pooler is full. In statement mode it ends the connection of the first
	// transaction, of which lib/pq says ErrBadConn.
	if err != nil && pooled != nil && !v.Refuses(err) && !errors.Is(err, driver.ErrBadConn) {
		return fmt.Errorf("%w (inside a transaction, because outside: %v)", err, pooled)
	}
	if err != nil && pooled != nil && !errors.Is(err, ErrSessionPooled) {
		return fmt.Errorf("%w; and inside a transaction: %w", pooled, err)
	}
	if err == nil && named && pooled == nil {
		pooled = v.checkServer(ctx)
	}
	switch {
	case err != nil:
		return err
	case named && errors.Is(pooled, ErrSessionPooled):
		return fmt.Errorf("%w: pgx keeps prepared statements, whose names are those of other clients of the pooler: "+
			"set default_query_exec_mode=exec in the DSN, or use a pooler that tracks them", ErrSessionPooled)
	}
	v.inside.Store(true)
	return nil
}

// checkTransactions checks that a transaction keeps its backend, that it has no snapshot
// between two statements, and that its locks end with it. named reports whether the driver
// keeps prepared statements with names of its own. It checks that again, as checkServer does,
// if a connection that is cut may be the cause. A pooler that answers outside a transaction, and
// not inside, permits none.
func (v *Server) checkTransactions(ctx context.Context) (named bool, err error) {
	for repeats := poolerRepeats; ; repeats-- {
		if err = v.with(ctx, false, func(s *Session) error { return s.pingThroughPooler(ctx) }); err == nil {
			named, err = v.checkTransactionsOnce(ctx)
		}
		if repeats == 0 || !errors.Is(err, ErrSessionPooled) && !errors.Is(err, ErrNoAdvisoryLocks) && !errors.Is(err, driver.ErrBadConn) {
			return named, err
		}
	}
}

// pingThroughPooler sends a statement that no driver prepares, outside a transaction. It hides
// driver.ErrBadConn, which its callers take for a pooler that permits no transactions.
func (s *Session) pingThroughPooler(ctx context.Context) error {
	_, err := doSimple(ctx, s, func(ctx context.Context, _ *db.Queries) (any, error) { return nil, s.conn.PingContext(ctx) })
	if errors.Is(err, driver.ErrBadConn) {
		err = errors.New(err.Error())
	}
	if err != nil {
		return fmt.Errorf("elector: the server does not answer through the pooler, which may not reach it, or have no server connection left "+
			"(default_pool_size of PgBouncer): %w", Explain(err))
	}
	return nil
}

func (v *Server) checkTransactionsOnce(ctx context.Context) (named bool, err error) {
	if !slices.ContainsFunc(v.settings, func(s setting) bool { return s.Name == leaseInside }) {
		v.settings = settings(v.Config) // a check in session scope has left it out
	}
	named, err = v.tryTransactions(ctx)
	if !refusesSetting(err) {
		return named, err
	}
	err = v.with(ctx, false, func(s *Session) error { return v.dropRefusedSettings(ctx, s, leaseInside) })
	if err != nil {
		return false, err
	}
	return v.tryTransactions(ctx)
}

func (v *Server) tryTransactions(ctx context.Context) (named bool, err error) {
	err = v.with(ctx, true, func(a *Session) error {
		if err := v.checkPrimary(ctx, a); err != nil {
			return err
		}
		rows, err := doSimple(ctx, a, func(ctx context.Context, q *db.Queries) (int64, error) { return q.NamedStatement(ctx) })
		if named = rows > 0; err == nil {
			err = a.applyLocally(ctx, v.settings)
		}
		if err != nil {
			return Explain(err)
		}
		lent := false
		err = v.with(ctx, true, func(b *Session) error {
			lent = true
			return compareTransactions(ctx, a, b)
		})
		if !lent && (errors.Is(err, ErrSessionPooled) || errors.Is(err, driver.ErrBadConn)) {
			// A pooler that has begun one transaction permits them. It is full.
			err = fmt.Errorf("elector: begin a second transaction: the pooler may have no server connection left (default_pool_size of PgBouncer): %v", err)
		}
		return err
	})
	return named, err
}

// compareTransactions has a hold a lock inside its transaction, and b look at it.
func compareTransactions(ctx context.Context, a, b *Session) error {
	looks := func(s *Session) (db.ShowsSnapshotRow, error) {
		row, err := doFresh(ctx, s, func(ctx context.Context, q *db.Queries) (db.ShowsSnapshotRow, error) {
			return q.ShowsSnapshot(ctx, a.pid)
		})
		return row, Explain(err)
	}
	own, err := looks(a)
	if err != nil {
		return err
	}
	key := int64(rand.Uint64())
	if _, err := tryPair(ctx, a, key, doFresh); err != nil {
		return Explain(err)
	}
	switch err := a.Stay(ctx); {
	case errors.Is(err, errTransactionOver):
		return pgerr.Wrap(ErrSessionPooled, err)
	case err != nil:
		return Explain(err)
	}
	seen, err := looks(b)
	if err != nil {
		return err
	}
	switch {
	case seen.Started != own.Started:
		return errTwoServers
	case seen.Pid == a.pid:
		return fmt.Errorf("%w: even inside a transaction", ErrSessionPooled)
	case seen.Held:
		return fmt.Errorf("%w: the driver leaves a snapshot in an idle transaction, which would hold back VACUUM", ErrSessionPooled)
	}
	free := func() (bool, error) {
		high, low := Halves(key)
		row, err := doFresh(ctx, b, func(ctx context.Context, q *db.Queries) (db.PairIsFreeRow, error) {
			return q.PairIsFree(ctx, db.PairIsFreeParams{High: high, Low: low})
		})
		return row.Free, Explain(err)
	}
	switch taken, err := free(); {
	case err != nil:
		return err
	case taken:
		return ErrNoAdvisoryLocks
	}
	if err := a.rollBack(ctx, nil); err != nil {
		return err
	}
	switch freed, err := free(); {
	case err != nil:
		return err
	case !freed:
		return fmt.Errorf("%w: a lock outlives its transaction", ErrNoAdvisoryLocks)
	}
	return nil
}
