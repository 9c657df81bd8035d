// Package elector elects exactly one leader among the processes of a service,
// on nothing but the PostgreSQL that they already have.
//
// # How to use it
//
// [New] makes a candidate; it takes the *sql.DB that the program has.
//
//	e, err := elector.New(pool, "orders")
//	if err != nil {
//		log.Fatal(err)
//	}
//	err = e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
//		fmt.Println("leading:", term.Valid())
//		// Work until ctx is done. The lock is held until this function returns.
//		return nil
//	})
//
// There are four styles, from the safest to the barest:
//
//   - [Elector.Run] campaigns, runs a function under each term, and waits for it
//     before it lets go of the lock.
//   - [Elector.TryRun] does so once, if nobody leads: for a cron job.
//   - [Elector.Start] and [Elector.Stop] do so in the background; hooks, or
//     [Elector.RunIfLeader], do the work.
//   - [Elector.Campaign] and [Elector.TryCampaign] return the [Term]. The caller works
//     until the term's context is done, and then calls [Term.Resign].
//
// [Elector.Leader], [Elector.Candidates] and [Elector.Observe] say who leads, on any
// process. Hooks (package hooks) receive what happens; the elector logs nothing.
//
// # What is not promised
//
// A lock service cannot stop a process. A leader that is frozen just after it
// has checked that it leads, and just before it writes, writes when it thaws,
// however late that is and whoever leads by then. IsLeader, Valid and the
// term's context narrow that window; only the store that is written to can
// close it, by refusing a [Term.Token] older than one that it has seen.
//
// A standby that is promoted knows nothing of its primary's locks. If that one runs on,
// both have a leader, unless [WithSynchronousStandby] rules it out.
//
// It is also not promised that somebody always leads: while the database
// cannot be reached, nobody does.
//
// # What is promised
//
//   - At most one candidate holds an election's lock.
//   - A candidate stops believing that it leads before the server can give the
//     lock to another, whenever the cause is its own silence: a frozen process, a
//     lost network, a hung host.
//   - Where the server itself ends the session (an administrator, a restart, a
//     crash, a step forward of its wall clock), it tells the leader before it frees the lock. The
//     leader stops believing within milliseconds with pgx, and within 250 ms with lib/pq. The next
//     term's token is larger.
//   - A session whose state is in doubt never returns to the pool.
//   - The lock is released only after the leader's work has returned. Work that does
//     not return within its drain is reported to OnError, while the lock is held too.
//   - A server that cannot keep the promise is refused, with an error that says why.
//
// # How an election goes
//
//	    ┌───────── not elected: wait, then try again ─────────┐
//	    ▼                                                     │
//	Following ── attempt: borrow a connection, try the lock ──┤ busy, or failed
//	    ▲                                                     │
//	    │                                                     │ granted: verify, token
//	    │                                                     ▼
//	    │       Leading: lead(term's context) ‖ heartbeats on the session
//	    │          │ lead returned  │ heartbeat failed  │ validity ran out  │ shutdown
//	    │          ▼                ▼                   ▼                   ▼
//	    └─ lost ─ Stepping down: cancel → work returns → hooks → unlock → discard the session
//
// The code has one function per state: campaign.run follows, Elector.serve leads, Term.keep
// steps down. This package is policy: who campaigns when, what a term's work may do, what
// hooks receive. internal/lock is one election's lock: how it is acquired, verified and
// released. internal/session is one pinned connection.
//
// Before the first attempt the server is checked: the backends of two connections are
// compared, because a pooler that shares backends between connections would share the lock
// too. An attempt is one statement on a borrowed connection. If the lock and the deputy's
// seat are busy, the connection goes back to the pool as it came. If it is granted, the same statement has
// set the session up, and the connection is pinned and never given back. A second statement
// checks that pg_locks shows the lock as this backend's, waits for the fenced transactions
// of the last term, and reads the token. So an election costs two statements, a heartbeat
// one, a resignation one. At rest heartbeats and attempts are sent, and write nothing.
//
// # When the server is away
//
// A candidate that has reached a server before, and now cannot, expects the next one: it is
// restarted, or another is promoted. For a minute it makes quick attempts, 250 to 334 ms
// apart, so that the election has a leader soon after the address leads to a primary. Only the
// last leader and the deputy do so; the others make one per retry interval, because there may
// be hundreds of them. So the last leader is back 150 ms after the address works again, on
// average, and 334 ms at the latest, plus the time of one attempt: two new connections and a
// dozen statements. If the old server's host has vanished without a word, each connection
// that the pool still has to it costs an attempt of one validity first. After a minute the
// waits are those of [WithBackoff].
//
// # Scopes
//
// Through a transaction pooler the lock is held inside a transaction, which keeps its backend
// ([WithScope]). The lease is then idle_in_transaction_session_timeout, and the arithmetic
// below is the same. The transaction has no snapshot and no transaction id between two
// statements. An error inside it releases the lock at once: the term ends as with a lost
// session.
//
// # The deputy
//
// An election has two seats, advisory locks like the leader's. The leader holds one. The
// attempt that finds the lock busy tries the other: whoever gets it becomes the deputy,
// keeps that session, and tries the lock once per deputy interval, 100 ms by default. The
// others try once per retry interval. So an election pins two connections, however many
// candidates it has. Holding a seat decides nothing. It is lost with its session, so a
// deputy that dies or freezes is replaced like a leader, by the next attempt of another.
//
// With [WithStandby] ([Wait]) the deputy waits in the server's queue instead, and the server
// hands the lock over within milliseconds. Each wait is bounded by a heartbeat interval,
// because a waiting statement holds back the server's xmin, and by what the server would
// log. With [Poll] a candidate is never the deputy.
//
// # The loss of a session
//
// Between two statements a leader waits on its own idle connection, and so reads at once what
// the server says when it ends the session, or that the connection broke. That ends the term.
// No statement is sent for it. Whoever wants to send one ends the wait first, by a deadline of
// the network connection, in some 20 µs. This needs pgx, also below a pgxpool or a wrapper with
// a method Raw, Unwrap or WrappedConn that returns a driver.Conn. A connection of another driver,
// or one without deadlines, cannot be waited on: then an empty statement is sent each 250 ms
// between two heartbeats. [Settings] and the event hooks.Elected say which. The lease is the
// same: only answers prolong the term.
//
// # Health, wake-ups, hand-over
//
// With [WithHealth] a candidate whose check of its own health is bad several times in a row
// does not campaign, and is not the deputy; a leader steps down cleanly.
//
// With [WithNotifier] a leader that has released its lock notifies the others, on another
// connection of the pool, so that they try at once. Notifications are hints: none is
// trusted, and a lost one costs a retry interval.
//
// With [Term.TransferTo] a leader hands over to a successor that it names. It takes a lock
// that is an offer. The successor sees it when it next finds the election's lock busy, and
// then waits in the server's queue, where only a deputy that waits can be before it. The
// term ends when the successor is the first. One statement looks whether it still is,
// and releases the lock, which the server grants it as part of the release. In transaction
// scope the lock is released a moment later, and another candidate may be faster. If the
// successor does not come within one lease, the term goes on.
//
// # Many elections on one connection
//
// [NewSession] pins one connection for any number of elections. One statement per retry
// interval tries all that follow, one more verifies all grants, and one heartbeat proves
// every term. Once per deputy interval the session looks whether the shared session that
// leads most of its elections has ended; then it tries them all at once. Losing the
// connection ends every term at once; resigning one disturbs no other. [Elector.Close] ends
// one election cleanly and removes it from its session.
//
// # Sessions
//
// A session is ended by making the pool discard its connection (driver.ErrBadConn from
// sql.Conn.Raw). Closing the sql.Conn alone would put the connection back into the pool with
// the lock still held. Each driver call is made on its own goroutine and waited for no
// longer than its answer is of use, because a driver on a dead link may not return for
// minutes, whatever its context says. The connection of a session that has ended stays
// open, if it can, until the last work has returned or its drain is over: a server that
// still hears this process would give the lock to another as soon as it is closed.
//
// # The lease
//
// idle_session_timeout makes PostgreSQL end a session that sends nothing for so
// long, and with it free the lock (PostgreSQL manual, 20.11.1). That is the
// lease: it needs no table, no comparison of two machines' clocks, and it evicts
// a frozen process, whose kernel goes on answering TCP keepalives.
//
// Let L be the lease, and sent the moment just before the last answered
// statement was sent, on this process's clock. The server's idle timer starts
// when it has answered, which is later. So the server keeps the lock at least
// until sent + L, and this process
//
//	sent                                                                   sent + L
//	  ├──────────── the term is valid ────────────┼── drain ──┼── margin ──┤
//	  │  heartbeat  heartbeat  heartbeat …        │           │            │
//	  │                                           │           │            the server may end the session,
//	  │                                           │           │            and another may lead, from here on
//	  │                                           │           work still running is reported to OnError
//	  │                                           the context is cancelled; IsLeader is false from here on
//
// The margin, L/10, covers the drift between the two clocks' rates and the time
// to be scheduled. The drain is what the work gets to wind down. With the
// defaults (L 10 s, drain 2 s, margin 1 s) a term is valid for 7 s after the last
// answered heartbeat, and a heartbeat is sent every 2 s, so a database that
// stalls for up to 5 s costs no leadership. A leader that is frozen or cut off is
// replaced at most L + the deputy interval after its last statement, or L + the retry
// interval if nobody is the deputy; later if it was inside [Term.InTx].
//
// The validity is computed at the time of each call, from both the monotonic and
// the wall clock, and the larger of the two elapsed times counts: the monotonic
// clock may stand still while a machine sleeps. A wall clock that is set forward
// by more than the validity therefore ends a term early; one that is set back
// changes nothing.
//
// The server's timeouts end at a time of its wall clock. After that clock is set
// back, the session of a silent leader ends later, by up to as much. After it is set
// forward, a session may end earlier, by up to as much. Up to the margin this changes
// nothing. Beyond the margin, the work of a silent leader may not have returned when
// another is elected; beyond margin and drain, a silent leader may believe in itself
// beside the other. Slewing by less than a tenth of the rate is covered by the margin.
//
// # Two primaries
//
// The lease is one server's. If a standby is promoted while its primary runs on, each
// has locks of its own, and each a leader. With synchronous replication
// [WithSynchronousStandby] rules that out. Let sent be the moment just before the old
// leader sent the last commit that was acknowledged, and L the longest lease:
//
//	sent         promoted     first seen as a primary
//	  ├── the old leader's term is valid ──┼── drain ──┼── margin ──┤ sent + L
//	  │    │         │            │
//	  │    │         │            ├────────────── L ────────────────┤ the next leader's term begins
//	  │    │         │            by a candidate
//	  │    │         a standby is promoted
//	  │    it has acknowledged the commit
//
// A standby acknowledges a commit after it was sent, and none after its own promotion:
// its WAL receiver ends before the new timeline begins. So promoted > sent. Nobody sees
// it as a primary before. So the next term begins after sent + L, and the work of the old
// one has had to return a margin before that. The wait is counted by the monotonic clock,
// which may stand still but does not jump; the margin covers the drift of the two clocks'
// rates, as above. A primary is known by its timeline and by when its server was started,
// since the number of a timeline that was discarded may be used again; so a restart has
// candidates wait as well.
//
// This needs the following. The elector checks what it can:
//
//   - Each standby that may be promoted is listed in synchronous_standby_names, and
//     commits wait for all that are. The setting is read before each commit and after
//     it, with the time at which the backend loaded it; a reload in between makes the
//     commit one that is not counted. Whether another standby is promoted nobody can see.
//   - No two standbys have the same name. Those that stream at the time are compared.
//   - An answer is an acknowledgement. It is none if somebody cancels the wait, or while
//     the server does not yet act on a setting that was empty before. A role that may see
//     pg_stat_replication (pg_read_all_stats) compares what each standby has flushed. No
//     answer counts that took longer than half of the validity, and no commit if right after
//     it one of the standbys does not stream: it cannot be compared.
//   - The commit is made where the session is: the session holds one more lock, of a
//     random key, and the commit looks for it.
//   - Every candidate has the option, and none a longer lease than L.
//
// # When something fails
//
//	what happens                          the leader learns it            the lock is free            Demoted.Reason
//	Resign, or lead returns nil           at once                         when the work has returned  resigned
//	its health stays bad (WithHealth)     at the last bad check           when the work has returned  unhealthy
//	lead returns an error, or panics      at once                         when the work has returned  lead_failed
//	the context ends, or Stop             at once                         when the work has returned  shutdown
//	the process is killed                 -                               at once: its sockets close  -
//	the process is frozen                 when it thaws; IsLeader is      after the lease             lease_expired
//	                                      false from its first call
//	the link is dead                      after the validity              after the lease             lease_expired
//	the host is gone                      -                               after the lease             -
//	the backend is terminated             at once; within 250 ms with     at once                     session_lost
//	                                      lib/pq
//	the server restarts or crashes        the same                        at once                     session_lost
//	a proxy cuts all connections          the same                        when the server notices     session_lost
//	an error inside the transaction       at once, and the connection     at once                     session_lost
//	(transaction scope)                   is closed
//	the server's clock is set forward     the same                        at once                     session_lost
//	the server is demoted to a standby    at the next heartbeat           at once, on the new primary session_lost
//	a standby is promoted beside it       when InTx or Leader reaches     at once, on the new primary session_lost
//	                                      the new one; after the validity                             lease_expired
//	                                      with WithSynchronousStandby
//
// Another statement is one of InTx and its function, of Leader, Candidates and Observe, or
// of an attempt in another election on the same pool. If it finds its connection broken, a
// heartbeat is sent at once, up to four a second, to see whether the session has ended too.
//
// The timeline tells a promoted server from the old primary. A candidate that led on the old
// primary and has reached the promoted one is not elected on the old one ([ErrOldPrimary]) until
// a lease has passed since its last attempt, or term, on the promoted one. This needs the right
// to execute pg_control_system, which all roles have by default.
//
// # The token
//
// A term's token is (timeline + epoch) << 48 | transaction id, read from the server
// while the lock is held. It rises with every term of any election on the cluster, and
// across a promotion, after which the transaction ids of two primaries may repeat
// but the timelines do not. It is not consecutive; and elections of one [Session]
// that are won by the same statement share it.
//
// The timeline, or the transaction ids, start anew after a pg_upgrade (the timeline), a
// dump and restore, a snapshot that is started again, or when a failover manager
// discards a promoted branch. Tokens then fall, and a store that has seen a larger one
// refuses every leader. The epoch, 0 by default, makes up for it: the setting
// pgelector.epoch of the database, made by ALTER DATABASE … SET and read at each
// election, or [WithTokenEpoch], whichever is larger. The upper 16 bits of the largest
// token that a store has seen are always enough. An epoch must never be lowered. A
// setting that is no number from 0 to 32766 elects nobody: [ErrTokenEpoch].
//
// # Fenced transactions
//
// [Term.InTx] needs no token. It shares the election's guard lock until its
// transaction ends, and then sees that the lock is still held by the session of the
// term: by its process id and the moment it began, because process ids are reused.
// A new leader takes the guard lock exclusively, and lets go of it, before anything
// else sees its term. So it waits for every transaction of the old term that is in
// flight, and each later one is refused.
package elector
