package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
)

// refusedFor is how long a pooler must refuse each transaction to be one that permits none.
const refusedFor = 10 * time.Second

// checkScope checks the server, and chooses the scope.
func (from *Source) checkScope(ctx context.Context) error {
	var outside error
	if !from.InTransaction() && !from.pooled {
		outside = from.checkServer(ctx)
		if from.Scope == SessionScope || !errors.Is(outside, pgerr.ErrSessionPooled) {
			return outside
		}
	}
	named, err := from.checkTransactions(ctx)
	from.pooled = ctx.Err() != nil // if ctx has ended, the next check goes on here; else it starts over
	if err != nil && outside != nil && !from.Refuses(err) {
		// Temporary, as when the pooler is full.
		return fmt.Errorf("%w (inside a transaction, because outside: %v)", err, outside)
	}
	if err != nil && outside != nil && !errors.Is(err, pgerr.ErrSessionPooled) {
		return fmt.Errorf("%w; and inside a transaction: %w", outside, err)
	}
	if err == nil && named && outside == nil {
		outside = from.checkServer(ctx)
	}
	switch {
	case err != nil:
		return err
	case named && errors.Is(outside, pgerr.ErrSessionPooled):
		return fmt.Errorf("%w: pgx keeps prepared statements, whose names are those of other clients of the pooler: "+
			"set default_query_exec_mode=exec in the DSN, or use a pooler that tracks them", pgerr.ErrSessionPooled)
	}
	from.inside.Store(true)
	return nil
}

// checkTransactions checks that a transaction keeps its backend, that it has no snapshot
// between two statements, and that its locks end with it. named reports whether the driver
// keeps prepared statements with names of its own. It checks that again, on new connections, if
// the end of a backend may be the cause.
func (from *Source) checkTransactions(ctx context.Context) (named bool, err error) {
	for repeats := poolerRepeats; ; repeats-- {
		if err = from.with(ctx, false, func(s *Session) error { return s.pingOutside(ctx) }); err == nil {
			named, err = from.checkTransactionsOnce(ctx)
		} else {
			from.refused = 0
		}
		if repeats == 0 || !errors.Is(err, pgerr.ErrSessionPooled) && !errors.Is(err, pgerr.ErrNoAdvisoryLocks) && from.refused == 0 {
			return named, err
		}
	}
}

// pingOutside sends a statement that no driver prepares, outside a transaction.
func (s *Session) pingOutside(ctx context.Context) error {
	_, err := s.Simple().Call(ctx, func(ctx context.Context, _ *db.Queries) error { return s.pin.Ping(ctx) }, nil)
	if err != nil {
		return fmt.Errorf("elector: ask outside a transaction: "+noTransaction+": %w", pgerr.Explain(err))
	}
	return nil
}

// permits returns err, why the first transaction of a check did not begin; nil if it did. A pooler
// permits none only if it has refused many, for a while in which it always answered outside one:
// its error is that of a backend that has ended, too.
func (from *Source) permits(err error) error {
	switch {
	case !pooled.IsRefusal(err):
		from.refused = 0
		return err
	case from.refused == 0:
		from.refusedSince = time.Now()
	}
	from.refused++
	if took := time.Since(from.refusedSince); from.refused >= pooled.Refusals && took >= refusedFor {
		err = fmt.Errorf("%w: it has refused %d transactions within %v, and answered outside one (statement pooling): %w",
			pgerr.ErrSessionPooled, from.refused, took.Round(time.Second), err)
	}
	return err
}

func (from *Source) checkTransactionsOnce(ctx context.Context) (named bool, err error) {
	if !slices.ContainsFunc(from.settings, func(s setting) bool { return s.Name == leaseInside }) {
		from.settings = settings(from.Name, from.Lease) // a check in session scope has left it out
	}
	named, err = from.tryTransactions(ctx)
	if !refusesSetting(err) {
		return named, err
	}
	err = from.with(ctx, false, func(s *Session) error { return from.dropRefusedSettings(ctx, s, leaseInside) })
	if err != nil {
		return false, err
	}
	return from.tryTransactions(ctx)
}

func (from *Source) tryTransactions(ctx context.Context) (named bool, err error) {
	begun := false
	err = from.with(ctx, true, func(a *Session) error {
		begun = true
		_ = from.permits(nil)
		if err := from.checkPrimary(ctx, a); err != nil {
			return err
		}
		rows, err := Ask0(ctx, a.Simple(), (*db.Queries).NamedStatement)
		if named = rows > 0; err == nil {
			err = a.applyLocally(ctx, from.settings)
		}
		if err != nil {
			return pgerr.Explain(err)
		}
		return from.with(ctx, true, func(b *Session) error { return compareTransactions(ctx, a, b) })
	})
	if !begun {
		err = from.permits(err)
	}
	return named, err
}

// compareTransactions has a hold a lock inside its transaction, and b look at it.
func compareTransactions(ctx context.Context, a, b *Session) error {
	looks := func(s *Session) (db.ShowsSnapshotRow, error) {
		row, err := Ask(ctx, s.Fresh(), (*db.Queries).ShowsSnapshot, a.pid)
		return row, pgerr.Explain(err)
	}
	own, err := looks(a)
	if err != nil {
		return err
	}
	a.SetTransaction(own.Started, own.Mark) // which DescribeServer has set
	key := int64(rand.Uint64())
	if _, err := a.tryPair(ctx, a.Fresh(), key); err != nil {
		return pgerr.Explain(err)
	}
	switch err := a.Stay(ctx); {
	case errors.Is(err, errTransactionOver):
		return pgerr.Wrap(pgerr.ErrSessionPooled, err)
	case err != nil:
		return pgerr.Explain(err)
	}
	seen, err := looks(b)
	if err != nil {
		return err
	}
	switch {
	case seen.Started != own.Started:
		return errTwoServers
	case seen.Pid == a.pid:
		return fmt.Errorf("%w: even inside a transaction", pgerr.ErrSessionPooled)
	case seen.Held:
		return fmt.Errorf("%w: the driver leaves a snapshot in an idle transaction, which would hold back VACUUM", pgerr.ErrSessionPooled)
	}
	free := func() (bool, error) {
		high, low := lockkey.Halves(key)
		row, err := Ask(ctx, b.Fresh(), (*db.Queries).PairIsFree, db.PairIsFreeParams{High: high, Low: low})
		return row.Free, pgerr.Explain(err)
	}
	switch taken, err := free(); {
	case err != nil:
		return err
	case taken:
		if err := a.Stay(ctx); err != nil { // its lock has ended with its backend
			return pgerr.Explain(err)
		}
		return pgerr.ErrNoAdvisoryLocks
	}
	if err := a.rollBack(ctx, nil); err != nil {
		return err
	}
	switch freed, err := free(); {
	case err != nil:
		return err
	case !freed:
		return fmt.Errorf("%w: a lock outlives its transaction", pgerr.ErrNoAdvisoryLocks)
	}
	return nil
}
