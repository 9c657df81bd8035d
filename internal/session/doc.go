// Package session is one pinned connection: it holds what the server keeps for a
// session, and says whether that can still be relied on. It knows no policy, no hooks and
// no options, and of locks only those by which others know it.
//
// # The life of a session
//
//	          [Source.Retry]: check the server, before it is asked for a lock
//	             │
//	   ┌─────────┴─────────┐
//	[Source.Borrow]     queue.Open
//	as the pool has it  with the session settings
//	   └─────────┬─────────┘
//	             │ [Source.Start]
//	             ▼
//	          [Session], kept alive: heartbeats ‖ the validity's own timer ‖ the wait for its loss
//	             │ a statement failed │ validity ran out │ the backend ended │ Close
//	             ▼                    ▼                  ▼                   ▼
//	          ended: the cause is set → the connection is discarded → closed
//
// Session.keep is the life of a session and its teardown. Source is what was learned of
// the server. A session that has ended is never used again. A [Part] hooks into both.
//
// # Rules
//
//   - A driver call is never trusted to return. Each is made by [Do], which waits no longer
//     than the answer is of use.
//   - A connection on which something was changed never goes back to the pool. Only
//     package pin touches a *sql.Conn, and package fenced that of a user's transaction.
//   - An answer counts from before its question was sent (package lease): one that is read too
//     late elects nobody, and proves nothing.
//   - Whatever leaves in doubt what a session holds ends the session, with a cause that
//     wraps pgerr.ErrSessionLost or ErrLeaseExpired.
package session
