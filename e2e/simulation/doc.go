// Package simulation plays elections in virtual time, on the stand-in of package
// electortest: candidates of every kind, and faults, all drawn from a seed. It looks at
// every step whether what is promised holds.
//
// # What happens
//
// A [Plan] has one to four candidates for one or two elections, with a lease and all that
// follows from it, a latency, and a server whose clock runs up to 8 % faster or slower.
// Candidates use Run, Campaign, TryCampaign, Start and RunIfLeader, or a Session; they
// draw what they do while another leads, may watch, behave after pgx or lib/pq, and some write in transactions of
// their terms, are gated by their health, hear of resignations by a notifier that is late,
// deaf or tells twice, or resign in favour of another, who may be dead. Up to five faults strike, each for a while, of those in faults.go.
// In a quarter of the plans commits wait for a standby, and the candidates have
// WithSynchronousStandby: one or two more faults cut the standby off, take it off the
// list, or promote it beside its primary.
//
// # What is looked at
//
//   - Nobody leads, or works as if, beside another; but one whose session the server
//     has ended may, for less than a lease.
//   - Nobody believes, or works, when the server ends its session for its silence, nor
//     when its own connection is closed with the lock still held.
//   - No lock is unlocked before the work under it has returned; that of a caller of
//     Campaign gets the drain for it, in which its process may be frozen.
//   - Tokens rise. Hooks keep their contract.
//   - No write of a transaction of a term is lost to another's, or comes after a later
//     term's.
//   - Once all faults are over, somebody leads within a bound.
//   - At the end no candidate, connection, lock, setting or goroutine is left.
//
// # What is not like life
//
// A frozen process stands still where the library reads the clock or calls its driver,
// and the simulated work does; not between any two instructions. A statement happens in
// one instant. Work about the time when a clock is set forward, which ends a term at the
// next look, is not held against it. The Go scheduler is not drawn from the seed: what
// happens at the same instant may come in another order when it is played again.
package simulation
