// Package holder asks who holds an election's lock.
package holder

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/session"
)

// Of asks who holds the lock, on a connection of the pool. held is false if nobody
// leads by it; holder may then block all candidates. It waits for the answer until ctx ends, and no longer than timeout.
func Of(ctx context.Context, pool *sql.DB, key int64, timeout time.Duration) (holder lock.Holder, held bool, err error) {
	row, err := session.Ask(ctx, pooled.Reading(pool, timeout), (*db.Queries).Holder, key)
	if errors.Is(err, sql.ErrNoRows) {
		return lock.Holder{}, false, nil
	}
	if err != nil {
		return lock.Holder{}, false, err
	}
	return holderOf(row), row.Blocks == "", nil
}

func holderOf(row db.HolderRow) lock.Holder {
	h := lock.Holder{CandidateID: row.ApplicationName, PID: row.Pid, User: row.Usename, Addr: row.ClientAddr, SessionAt: db.Time(row.ConnectedMicros),
		Lease: time.Duration(row.LeaseMillis) * time.Millisecond, ElectedAt: db.Time(row.SinceMicros),
		RenewedAt: db.Time(row.RenewedMicros), AskedAt: db.Time(row.AskedMicros)}
	if row.Blocks != "" {
		h.Blocks = db.Blocker(row.Pid, row.ApplicationName, row.Usename, row.Blocks, row.Prepared)
	}
	switch {
	case row.InTransaction:
		h.Scope = session.TransactionScope
	case h.Lease != 0:
		h.Scope = session.SessionScope
	}
	return h
}

// SeenBy asks on the session. The holder is zero if there is none, or if the server
// cannot be asked, which the next statement on the session finds too. A transaction would
// keep locks of the relations that are read, so another connection asks.
func SeenBy(ctx context.Context, s *session.Session, key int64) lock.Holder {
	row, _ := session.Ask(ctx, s.Aux(), (*db.Queries).Holder, key)
	if row.Blocks != "" {
		return lock.Holder{}
	}
	return holderOf(row)
}
