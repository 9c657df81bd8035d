package session

import (
	"context"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// A Scope is how long the locks of a session last.
type Scope int

const (
	Auto Scope = iota // SessionScope, unless shared backends are found
	SessionScope
	TransactionScope
)

// An Owner is what the server keeps the locks of a session for. It is the connection, unless a part has
// said otherwise by SetOwner. The session calls After, Failed and Ping within its calls.
type Owner interface {
	Scope() Scope

	// By is the caller that makes calls in that way.
	By(way Way) Caller

	// After follows a call that the server has answered. An error says that the locks are gone.
	After(ctx context.Context) error

	// Failed reports whether a call that fails costs the locks.
	Failed() bool

	// Ping asks for a heartbeat. An error says that the session is lost.
	Ping(ctx context.Context, q *db.Queries) (db.PingRow, error)

	// Stay asks the server whether the owner is there still, unless the session is the owner.
	Stay(ctx context.Context) error

	// RollBack releases what was taken, so that the connection can go back to the pool.
	RollBack(ctx context.Context) error

	// Drop gives up what the owner has beside the session. Start and the end of the session call it.
	Drop(discard bool)
}

// A Way is a way to make calls that depends on the owner of the locks: see Caller.
type Way int

const (
	Trial Way = iota
	Aux
	AuxThenVerify
)

// Trial, Aux and AuxThenVerify are ways: see Caller.
func (s *Session) Trial() Caller         { return s.owner.By(Trial) }
func (s *Session) Aux() Caller           { return s.owner.By(Aux) }
func (s *Session) AuxThenVerify() Caller { return s.owner.By(AuxThenVerify) }

// Owner is what the server keeps the session's locks for.
func (s *Session) Owner() Owner { return s.owner }

// SetOwner is for the part that lends the session.
func (s *Session) SetOwner(o Owner) { s.owner = o }

// Pin is the connection, for within a call of the session.
func (s *Session) Pin() *pin.Conn { return s.pin }

// InTransaction reports whether the session has its locks inside a transaction.
func (s *Session) InTransaction() bool { return s.owner.Scope() == TransactionScope }

// Stay returns nil if the owner of the locks is there still.
func (s *Session) Stay(ctx context.Context) error { return s.owner.Stay(ctx) }

// A connection is the owner of the locks in session scope.
type connection struct{ s *Session }

func (connection) Scope() Scope                   { return SessionScope }
func (c connection) By(Way) Caller                { return c.s }
func (connection) After(context.Context) error    { return nil }
func (connection) Failed() bool                   { return false }
func (connection) Stay(context.Context) error     { return nil }
func (connection) RollBack(context.Context) error { return nil }
func (connection) Drop(bool)                      {}

// Ping lets a full lock table say nothing about the session: then it can take no lock for a moment.
func (connection) Ping(ctx context.Context, q *db.Queries) (db.PingRow, error) {
	ping, err := q.Ping(ctx)
	if pgerr.State(err) == "53200" {
		var server db.DescribeServerRow
		server, err = q.DescribeServer(ctx)
		ping = db.PingRow{Pid: server.Pid, InRecovery: server.InRecovery}
	}
	return ping, err
}
