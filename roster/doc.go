// Package roster keeps a record of candidates and terms in two tables of the
// election's database: who stands for election, how it fares, and who led when.
// It is opt-in. An election needs no table, and does not ask this one.
//
// # What is not promised
//
//   - The roster never decides who leads. Lose its tables, the permission to write
//     them, or the whole roster: no term ends, and no candidate is elected later.
//   - It may be late or incomplete. What cannot be written is tried again; when too
//     much waits to be written, the oldest terms are dropped, and counted in [Stats].
//   - It is no audit log. Whoever may write the tables may write anything into them.
//
// # How to use it
//
//	candidates := roster.New(pool, roster.WithVersion("1.4.2"))  // and its error
//	candidates.Migrate(ctx)                                      // once, or at each start
//	elector.New(pool, "orders", elector.WithHooks(candidates))
//	…                                                            // the elector has stopped
//	candidates.Close(ctx)
//
// A [Roster] is a hook, for any number of electors. Its first event starts one
// goroutine, which does all the writing. The hook itself only notes what it is told, and
// never waits for the database. A Roster that is no elector's hook only reads.
//
// # Candidates
//
// A candidate is published when the roster is first told of it, and then once per
// publish interval: one statement for all candidates of the Roster, which writes
// some 200 bytes of WAL for each and does not wait for a disk. It is [Live] until
// three intervals have passed without a publication; then it is [Silent]: it was
// killed, or cannot reach the database. A candidate whose Roster was closed has
// [Left], and so has one whose elector has stopped, after some intervals in
// which the roster heard nothing of it.
//
// # Terms
//
// A term is written when it begins and again when it ends, each time at once. If
// its candidate does not live to tell the end, the reason is [Lost], and the term
// counts as ended when the next one began. Before there is a next one, it is told
// by the lock: a term goes on as long as pg_locks shows its candidate to hold it.
// When one that nobody succeeded has ended, nobody knows.
//
// # Times
//
// All times are of the server's clock. What happened a while ago is told to the
// server as the time that has passed since, so clocks of two machines are never
// compared. After the promotion of a standby they are of the new server's clock.
package roster
