package preflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/listen"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/transaction"
)

// A pooler permits no transactions if it has refused each of them for refusedFor.
const refusedFor = 10 * time.Second

// checkScope checks the server, and chooses the scope. deaf says why connections cannot be waited on.
func (p *Part) checkScope(ctx context.Context, from *election.Source) (deaf, err error) {
	var outside error
	if p.pooler && p.Scope.InTransaction() && p.isDirect(ctx, from, &deaf) {
		p.pooler = false
		p.Scope.inside.Store(false)
		return deaf, nil
	}
	if !p.Scope.InTransaction() && !p.Scope.suspected.Load() {
		deaf, outside = p.checkServer(ctx, from)
		if p.Scope.Chosen == holder.SessionScope || !errors.Is(outside, pgerr.ErrSessionPooled) {
			return deaf, outside
		}
	}
	deaf, named, err := p.checkTransactions(ctx, from)
	p.Scope.suspected.Store(ctx.Err() != nil) // if ctx has ended, the next check goes on here; else it starts over
	if err != nil && outside != nil && !from.Refuses(err) {
		// Temporary, as when the pooler is full.
		return nil, fmt.Errorf("%w (inside a transaction, because a pooler shares backends)", err)
	}
	if err != nil && outside != nil && !errors.Is(err, pgerr.ErrSessionPooled) {
		return nil, fmt.Errorf("%w; and inside a transaction: %w", outside, err)
	}
	if err == nil && named && outside == nil {
		_, outside = p.checkServer(ctx, from)
	}
	switch {
	case err != nil:
		return nil, err
	case named && errors.Is(outside, pgerr.ErrSessionPooled):
		return nil, pgerr.ErrMixedUp // by names that other clients of the pooler have, too
	}
	p.pooler = p.pooler || outside != nil
	p.Scope.inside.Store(true)
	return deaf, nil
}

// isDirect reports whether the pool leads to the server itself, although an earlier check has found a pooler: the
// pool may lead elsewhere now. It leaves most of the time to the check of transactions, which may need it.
func (p *Part) isDirect(ctx context.Context, from *election.Source, deaf *error) bool {
	brief, cancel := context.WithTimeout(ctx, from.Lease.Validity()/4)
	defer cancel()
	var err error
	*deaf, err = p.checkServer(brief, from)
	return err == nil
}

// checkTransactions checks that a transaction keeps its backend, that it has no snapshot
// between two statements, and that its locks end with it. named reports whether the driver
// keeps prepared statements with names of its own. If a check fails, and the end of a backend may
// be the cause, checkTransactions repeats the check on new connections.
func (p *Part) checkTransactions(ctx context.Context, from *election.Source) (deaf error, named bool, err error) {
	for repeats := poolerRepeats; ; repeats-- {
		if deaf, err = listen.Before(ctx, conns(ctx, from), func(c *pin.Conn) error { return pingOutside(ctx, &probe{conn: c, from: from}) }); err == nil {
			named, err = p.checkTransactionsOnce(ctx, from)
		} else {
			p.refused = 0
		}
		if repeats == 0 || !errors.Is(err, pgerr.ErrSessionPooled) && !errors.Is(err, pgerr.ErrNoAdvisoryLocks) && p.refused == 0 {
			return deaf, named, err
		}
	}
}

// pingOutside sends a statement that no driver prepares, outside a transaction.
func pingOutside(ctx context.Context, s *probe) error {
	if err := s.ping(ctx); err != nil {
		return fmt.Errorf("elector: ask outside a transaction: "+transaction.NoAnswer+": %w", pgerr.Explain(err))
	}
	return nil
}

// permits returns err, why the first transaction of a check did not begin; nil if it did. It adds that
// the pooler permits no transactions after many refusals, for a while in which the pooler always answered
// outside a transaction. One refusal proves nothing: a backend that has ended gives the same error.
func (p *Part) permits(err error) error {
	switch {
	case !pooled.IsRefusal(err):
		p.refused = 0
		return err
	case p.refused == 0:
		p.refusedSince = time.Now()
	}
	p.refused++
	if took := time.Since(p.refusedSince); p.refused >= pooled.Refusals && took >= refusedFor {
		err = fmt.Errorf("%w: it has refused %d transactions within %v, and answered outside one (statement pooling): %w",
			pgerr.ErrSessionPooled, p.refused, took.Round(time.Second), err)
	}
	return err
}

func (p *Part) checkTransactionsOnce(ctx context.Context, from *election.Source) (named bool, err error) {
	named, err = p.tryTransactions(ctx, from)
	if !refusesSetting(err) {
		return named, err
	}
	err = outside(ctx, from, func(s *probe) error {
		return p.dropRefusedSettings(ctx, from, s, "idle_in_transaction_session_timeout")
	})
	if err != nil {
		return false, err
	}
	return p.tryTransactions(ctx, from)
}

func (p *Part) tryTransactions(ctx context.Context, from *election.Source) (named bool, err error) {
	for n := 1; ; n++ {
		begun, found := false, false
		err = inside(ctx, from, func(a *probe) error {
			begun = true
			_ = p.permits(nil)
			if err := p.checkPrimary(ctx, from, a); err != nil {
				return err
			}
			rows, err := ask(ctx, a, func(q *db.Queries, ctx context.Context, _ any) (int64, error) { return q.NamedStatement(ctx) }, nil)
			if named = rows > 0; err == nil {
				err = a.apply(ctx, from.Settings())
			}
			if err != nil {
				return pgerr.Explain(err)
			}
			found = true
			return p.passOver(func() error {
				return inside(ctx, from, func(b *probe) error { return compareTransactions(ctx, a, b) })
			})
		})
		if !begun {
			err = p.permits(err)
		}
		if found || !p.isElsewhere(err) || n == transaction.MaxServers {
			return named, err
		}
	}
}

// compareTransactions takes a lock inside the transaction of a, and looks at the lock from b.
func compareTransactions(ctx context.Context, a, b *probe) error {
	looks := func(s *probe) (db.ShowsSnapshotRow, error) {
		row, err := ask(ctx, s, (*db.Queries).ShowsSnapshot, a.pid)
		return row, pgerr.Explain(err)
	}
	own, err := looks(a)
	if err != nil {
		return err
	}
	a.started, a.mark = own.Started, own.Mark // which DescribeServer has set
	key := int64(rand.Uint64())
	if _, err := a.tryPair(ctx, key); err != nil {
		return pgerr.Explain(err)
	}
	switch err := a.goesOn(ctx); {
	case errors.Is(err, transaction.ErrOver):
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
		return transaction.ErrTwoServers
	case seen.Pid == a.pid:
		return fmt.Errorf("%w: even inside a transaction", pgerr.ErrSessionPooled)
	case seen.Held:
		return fmt.Errorf("%w: the driver leaves a snapshot in an idle transaction, which would hold back VACUUM", pgerr.ErrSessionPooled)
	}
	switch taken, err := b.isFree(ctx, key); {
	case err != nil:
		return pgerr.Explain(err)
	case taken:
		if err := a.goesOn(ctx); err != nil { // its lock has ended with its backend
			return pgerr.Explain(err)
		}
		return pgerr.ErrNoAdvisoryLocks
	}
	if err := a.rollBack(ctx); err != nil {
		return err
	}
	switch freed, err := b.isFree(ctx, key); {
	case err != nil:
		return pgerr.Explain(err)
	case !freed:
		return fmt.Errorf("%w: a lock outlives its transaction", pgerr.ErrNoAdvisoryLocks)
	}
	return nil
}
