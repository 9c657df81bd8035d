package lock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/session"
)

// Holder is a session that holds a lock, or waits for it. elector.Leader documents its
// fields.
type Holder struct {
	CandidateID string
	PID         int32
	User        string
	Addr        string
	SessionAt   time.Time
	Lease       time.Duration
	Scope       session.Scope
	ElectedAt   time.Time
	RenewedAt   time.Time
	AskedAt     time.Time
	Blocks      string // says that it does not lead, and keeps the lock from all candidates; "" of a leader
}

// HolderOf asks who holds the lock, on a connection of the pool. held is false if nobody
// leads by it; holder may then block all candidates. It waits for the answer until ctx ends, and no longer than timeout.
func HolderOf(ctx context.Context, pool *sql.DB, key int64, timeout time.Duration) (holder Holder, held bool, err error) {
	row, err := session.Ask(ctx, session.Reading(pool, timeout), (*db.Queries).Holder, key)
	if errors.Is(err, sql.ErrNoRows) {
		return Holder{}, false, nil
	}
	if err != nil {
		return Holder{}, false, err
	}
	return holderOf(row), row.Blocks == "", nil
}

func holderOf(row db.HolderRow) Holder {
	h := Holder{CandidateID: row.ApplicationName, PID: row.Pid, User: row.Usename, Addr: row.ClientAddr, SessionAt: db.Time(row.ConnectedMicros),
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

// HolderSeenBy asks on the session. The holder is zero if there is none, or if the server
// cannot be asked, which the next statement on the session finds too. A transaction would
// keep locks of the relations that are read, so another connection asks.
func HolderSeenBy(ctx context.Context, s *session.Session, key int64) Holder {
	row, _ := session.Ask(ctx, s.Aux(), (*db.Queries).Holder, key)
	if row.Blocks != "" {
		return Holder{}
	}
	return holderOf(row)
}

// Holds asks whether the session holds the lock. It is an error if another backend answers.
func Holds(ctx context.Context, s *session.Session, key int64) (bool, error) {
	row, err := session.Ask(ctx, s, (*db.Queries).HoldsLock, db.HoldsLockParams{Pid: s.PID(), Key: key})
	if err == nil {
		err = s.CheckPID(row.Pid)
	}
	return row.Held, err
}
