// Package roster records candidates and terms in two tables of the election's database:
// who stands for election, how healthy they are, and who led when. Elections need no
// table, and never read these.
//
//	candidates, err := roster.New(pool, roster.WithVersion("1.4.2"))
//	err = candidates.Migrate(ctx) // once, or at each start
//	e, err := elector.New(pool, "orders", elector.WithHooks(candidates))
//	err = candidates.Add(e) // only to publish the health of elector.WithHealth
//	…                       // run the elector until it has stopped
//	err = candidates.Close(ctx)
//
// # What is not promised
//
//   - The roster never decides who leads. Without its tables, or without the right to
//     write them, no term ends and no candidate is elected later.
//   - It may be late or incomplete. It retries failed writes. If more than 1024 terms
//     wait, it drops the oldest and counts them in [Stats].
//   - It is no audit log. Whoever may write the tables may write anything into them.
//
// # Candidates
//
// A [Roster] is a hook for any number of electors. It never makes an elector wait: one
// goroutine does all the writing. A Roster that is nobody's hook only reads.
//
// The roster publishes a candidate at its first event, and then once per publish
// interval: one statement for all candidates, about 200 bytes of WAL for each, with an
// asynchronous commit. A candidate is [Live] for three intervals after a publication,
// then [Silent]: it was killed, or cannot reach the database. It has [Left] if its Roster
// was closed, or if its elector has stopped and reported nothing for some intervals.
//
// # Terms
//
// The roster writes a term when it begins and again when it ends, each time at once. If
// the candidate does not report the end, the reason is [Lost], and the term ended when
// the next one began. Until there is a next one, the term goes on for as long as
// pg_locks shows that its candidate holds the lock. If the lock is free, the end is
// unknown.
//
// # Times
//
// All times are the server's. A process tells the server how long ago something happened,
// so clocks of different machines are never compared. After the promotion of a standby
// the times are the new server's.
package roster
