// Package fenced is the transactions that commit only inside a term: a next leader waits until they have
// ended, and none begins after its grant.
package fenced

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/transaction"
)

// settings bound a fenced transaction by a lease.
func settings(length time.Duration) string {
	bound := fmt.Sprintf("%dms", length.Milliseconds())
	return election.Encode([]election.Setting{{Name: "statement_timeout", Value: bound}, {Name: "idle_in_transaction_session_timeout", Value: bound}, {Name: "transaction_timeout", Value: bound}})
}

// ErrGuardTaken is returned when the session of the term holds its lock, and another session holds the lock
// of a next leader.
var ErrGuardTaken = errors.New("elector: another session holds the lock that only a next leader takes, and this one still leads: does a stranger use this database?")

// names has the name by which fenced transactions know each session.
var names election.PerSession[name]

type name struct {
	key   atomic.Int64 // of a lock of two integers, random; 0 before the first transaction
	taken atomic.Bool  // the session holds that lock
}

// nameOf returns the key of a lock of two integers by which fenced transactions know the session. The first
// call takes the lock. In transaction scope nobody takes it: the transaction has a name.
func nameOf(ctx context.Context, s *election.Session) (int64, error) {
	n := names.Of(s)
	n.key.CompareAndSwap(0, int64(rand.Uint64()))
	key := n.key.Load()
	if transaction.IsOf(s) || n.taken.Load() {
		return key, nil
	}
	switch granted, err := transaction.TryPair(ctx, s, key); { // of two calls at once both take it: locks nest
	case err != nil:
		return 0, err
	case !granted:
		return 0, transaction.ErrNameTaken
	}
	n.taken.Store(true)
	return key, nil
}

// Places say which server a session is on.
type Places interface {
	IsOn(ctx context.Context, s *election.Session, reached db.IdentifyRow) bool
	Elsewhere(ctx context.Context, s *election.Session, reached db.IdentifyRow) error
}

// NamePrepared adds to err, the error of a transaction that its function has ended, the name of a prepared
// transaction that the function may have left. The prepared transaction holds the guard lock.
func NamePrepared(ctx context.Context, l *election.Lock, pool *sql.DB, err error) error {
	rows, _ := pooled.Read(ctx, pool, l.Session().Lease().Length, (*db.Queries).EndOverdue,
		db.EndOverdueParams{Key: l.Key(), LeaseMillis: math.MaxInt32}) // and none of this age
	if prepared := findPrepared(rows); prepared != nil {
		return fmt.Errorf("%w: %w", err, prepared)
	}
	return err
}

// TerminateOverdue terminates fenced transactions that have had their lease. The timeouts that
// InTx sets do that too, but none runs while the server waits for a frozen client in the
// middle of a result or of a COPY.
func TerminateOverdue(ctx context.Context, from *election.Source, inside bool, key int64) (prepared, err error) {
	return overdue(transaction.On(ctx, from, inside, (*db.Queries).EndOverdue, db.EndOverdueParams{Key: key, LeaseMillis: from.Lease.Length.Milliseconds()}))
}

// TerminateOverdueOn is TerminateOverdue on a session.
func TerminateOverdueOn(ctx context.Context, s *election.Session, key int64) (prepared, err error) {
	return overdue(election.Ask(ctx, s, (*db.Queries).EndOverdue, db.EndOverdueParams{Key: key, LeaseMillis: s.Lease().Length.Milliseconds()}))
}

func overdue(rows []db.EndOverdueRow, err error) (prepared, failed error) {
	if err != nil {
		return nil, fmt.Errorf("elector: terminate the overdue transactions of the last term (this role may lack pg_signal_backend): %w", err)
	}
	return findPrepared(rows), nil
}

// findPrepared returns an error if a transaction is prepared: it can only be ended by its name.
func findPrepared(rows []db.EndOverdueRow) error {
	for _, r := range rows {
		if r.Prepared != "" {
			return fmt.Errorf("elector: the prepared transaction %q holds the guard lock of the last term, so no later term can begin: "+
				"end it in this database, by COMMIT PREPARED or ROLLBACK PREPARED with that name", r.Prepared)
		}
	}
	return nil
}
