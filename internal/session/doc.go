// Package session is liveness: pinned connections that hold advisory locks, and
// what is known of whether they still do. It knows nothing of campaigns and terms,
// hooks' order or a leader's work: that is policy, and package elector's.
//
// # The life of a session
//
//	          [Server]: check the server, before it is asked for a lock
//	             │
//	   ┌─────────┼──────────────────┐
//	[Server.Try] [Parked.Wait]  [Server.Open], [Session.TryLocks]
//	one attempt  in the queue   many locks on one session
//	   └─────────┼──────────────────┘
//	             │ granted: verify in pg_locks, pass the barrier, read the token
//	             ▼
//	          [Session], kept alive: heartbeats ‖ the validity's own timer ‖ the watcher
//	             │ a statement failed │ validity ran out │ the backend ended │ Close
//	             ▼                    ▼                  ▼                   ▼
//	          ended: the cause is set → the connection is discarded → gone
//
// Every state has one place: session.keep is the life of a session and its
// teardown; Server is what was learned of the server; Parked is a place in the
// server's queue. A session that ends is never used again.
//
// # Rules
//
//   - A driver call is never trusted to return. Each is made on a goroutine of its
//     own (do), and waited for no longer than its answer is of use.
//   - A connection on which something was changed never goes back to the pool. Only
//     session.go touches a *sql.Conn, and tx.go that of a user's transaction.
//   - An answer counts from before its question was sent ([Lease], instant): what is
//     read too late elects nobody, and proves nothing.
//   - Whatever leaves in doubt what a session holds ends the session, with a cause
//     that wraps [ErrSessionLost] or [ErrLeaseExpired].
package session
