// Package holder asks who holds an election's lock.
package holder

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/transaction"
)

// A Scope is how long the lock of an election lasts.
type Scope int

const (
	Auto Scope = iota // not known
	SessionScope
	TransactionScope
)

// A Holder is a session that holds a lock, or waits for it. elector.Leader documents its fields.
type Holder struct {
	CandidateID string
	PID         int32
	User        string
	Addr        string
	SessionAt   time.Time
	Lease       time.Duration
	Scope       Scope
	ElectedAt   time.Time
	Priority    int32
	RenewedAt   time.Time
	AskedAt     time.Time
	Blocks      string // says that it does not lead, and keeps the lock from all candidates; "" of a leader
}

// GoesOn reports whether the term of this answer of the server goes on in a later one. In transaction scope two terms can share a
// backend.
func (h Holder) GoesOn(now Holder) bool {
	if h.ElectedAt.IsZero() || now.ElectedAt.IsZero() { // its first moment, or a shared session
		return now.PID == h.PID
	}
	return now.PID == h.PID && now.CandidateID == h.CandidateID && now.ElectedAt.Equal(h.ElectedAt)
}

// Of asks who holds the lock, on a connection of the pool. held is false if nobody leads by it; holder may then block all
// candidates. It waits for the answer until ctx ends, and no longer than timeout.
func Of(ctx context.Context, pool *sql.DB, key int64, timeout time.Duration) (holder Holder, held bool, err error) {
	return Found(pooled.Read(ctx, pool, timeout, (*db.Queries).Holder, key))
}

// Found is Of for an answer to db.Holder.
func Found(row db.HolderRow, err error) (holder Holder, held bool, _ error) {
	if errors.Is(err, sql.ErrNoRows) {
		return Holder{}, false, nil
	}
	if err != nil {
		return Holder{}, false, err
	}
	return of(row), row.Blocks == "", nil
}

// On is Of for a candidate, on a connection as its sessions have them.
func On(ctx context.Context, from *election.Source, inside bool, key int64) (holder Holder, held bool) {
	row, err := transaction.On(ctx, from, inside, (*db.Queries).Holder, key)
	if err != nil {
		return Holder{}, false
	}
	return of(row), row.Blocks == ""
}

func of(row db.HolderRow) Holder {
	h := Holder{CandidateID: row.ApplicationName, PID: row.Pid, User: row.Usename, Addr: row.ClientAddr, SessionAt: db.Time(row.ConnectedMicros),
		Lease: time.Duration(row.LeaseMillis) * time.Millisecond, ElectedAt: db.Time(row.SinceMicros), Priority: row.Priority,
		RenewedAt: db.Time(row.RenewedMicros), AskedAt: db.Time(row.AskedMicros)}
	if row.Blocks != "" {
		h.Blocks = db.Blocker(row.Pid, row.ApplicationName, row.Usename, row.Blocks, row.Prepared)
	}
	switch {
	case row.InTransaction:
		h.Scope = TransactionScope
	case h.Lease != 0:
		h.Scope = SessionScope
	}
	return h
}

// SeenBy asks on the session. The holder is zero if there is none, or if the server cannot be asked, which the next statement on
// the session finds too.
func SeenBy(ctx context.Context, s *election.Session, key int64) Holder {
	row, err := transaction.Beside(ctx, s, (*db.Queries).Holder, key)
	if err != nil || row.Blocks != "" {
		return Holder{}
	}
	return of(row)
}
