// Package elector elects at most one leader among the processes of a service,
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
// There are four styles, the safest first:
//
//   - [Elector.Run] campaigns, runs a function under each term, and waits for it
//     before it lets go of the lock.
//   - [Elector.TryRun] does so once, if nobody leads: for a cron job ([WithHold]).
//   - [Elector.Start] and [Elector.Stop] do so in the background; hooks, or
//     [Elector.RunIfLeader], do the work.
//   - [Elector.Campaign] and [Elector.TryCampaign] return the [Term]. The caller works
//     until the term's context is done, and then calls [Term.Resign].
//
// [Elector.Leader], [Elector.Candidates] and [Elector.Observe] say who leads, on any
// process. [Term.InTx] runs a transaction that commits only inside the term. [RequestResign]
// and [RequestTransfer] ask the leader to go. [NewSession] carries many elections on one
// connection. Hooks (package hooks) receive what happens; the elector logs nothing.
//
// The options, by purpose:
//
//   - who: [WithCandidateID], [WithKey], [WithPriority], [WithPreemptDelay]
//   - how long: [WithLease], [WithHeartbeatInterval], [WithDrain], [WithHold]
//   - followers: [WithTakeover], [WithRetryInterval], [WithDeputyInterval],
//     [WithBackoff], [WithMaxAttempts], [WithReadOnlyTimeout], [WithNotifier]
//   - on which servers: [WithScope], [WithLockDelay], [WithSynchronousStandby], [WithTokenEpoch]
//   - when to step down: [WithHealth], [WithValidateInterval], [WithRequests], [WithGracefulRelease]
//   - what is told: [WithHooks]
//
// [New] takes all of them, [NewSession] a [SessionOption], [Session.Elector] an [ElectionOption],
// [RequestResign] and [RequestTransfer] a [RequestOption].
//
// # What is not promised
//
// A lock service cannot stop a process. A leader that is frozen just after it
// has checked that it leads, and just before it writes, writes when it thaws,
// however late that is and whoever leads by then. IsLeader, Valid and the
// term's context narrow that window; only the store that is written to can
// close it, by refusing a [Term.Token] older than one that it has seen.
//
// A server whose host dies or hangs tells nobody. The leader there believes until its validity
// ends, beside the next server's leader, unless lease - lease/10 passes before that server
// accepts connections, or every candidate has [WithLockDelay] (docs/servers.md).
//
// A standby that is promoted knows nothing of its primary's locks. If that one runs on,
// both have a leader, unless [WithSynchronousStandby] rules it out.
//
// One clock of a leader's machine must run: a virtual machine that is paused or restored may stop both.
//
// Nobody leads while the database cannot be reached.
//
// # What is promised
//
//   - At most one candidate holds an election's lock.
//   - A candidate stops believing that it leads before the server can give the
//     lock to another, whenever the cause is its own silence: a frozen process, a
//     lost network, a hung host.
//   - Where a server that lives ends the session (an administrator, a restart, a
//     crash of its processes, a step forward of its wall clock), it tells the leader before it frees the lock. The
//     leader stops believing within milliseconds with pgx; with lib/pq it looks every 250 ms. The next
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
//	    │          │ lead returned  │ session lost  │ validity ran out  │ shutdown
//	    │          ▼                ▼               ▼                   ▼
//	    └─ lost ─ Stepping down: cancel → work returns → hooks → unlock → discard the session
//
// At rest heartbeats and attempts are sent, and write nothing. docs/how-it-works.md of the
// repository has each statement and its cost, the deputy, transaction scope, and the table of
// failures: what a leader learns of which, and when.
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
// The validity is computed at each call. The larger elapsed time of the monotonic and the wall
// clock counts, because the first may stand still while a machine sleeps. So a wall clock that
// is set forward by more than the validity ends a term early. One that is set back changes nothing.
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
// rates.
//
// # The token
//
// A term's token is (timeline + epoch) << 48 | transaction id, read from the server
// while the lock is held. It rises with every term of any election on the cluster, and
// across a promotion, after which the transaction ids of two primaries may repeat
// but the timelines do not. It is not consecutive; and elections of one [Session]
// that are won by the same statement share it. After pg_upgrade, a dump and restore, or a
// promoted branch that is discarded, tokens fall: [WithTokenEpoch] raises them again.
package elector
