// Package simulation runs elections in virtual time, on the server in memory of package
// electortest. A seed draws the candidates and the faults. Each step is checked against what
// the library promises.
//
// # What happens
//
// A [Plan] has one to four candidates for one or two elections, a lease with the durations
// that depend on it, a latency, and a server whose clock runs up to 8 % faster or slower.
// Candidates use Run, Campaign, TryCampaign, Start and RunIfLeader, or a Session. Each has a
// standby, and a driver that behaves like pgx or lib/pq. Some of them
//
//   - watch their session;
//   - write in transactions of their terms;
//   - have a health check;
//   - have a notifier that loses, delays and repeats notifications;
//   - transfer their terms to another candidate, which may be dead.
//
// Up to five of the faults in faults.go occur, each for a while. In a quarter of the plans
// commits wait for a standby, and the candidates have WithSynchronousStandby. There, one or two
// more faults cut the standby off, remove it from the list of standbys, or promote it while its
// primary lives on.
//
// In one of 24 plans the candidates are the members of a group of up to twelve shards instead,
// whose set may change. Half of the faults come before a quiet period, and half after it.
//
// # What is checked
//
//   - No two candidates lead or work at once. A candidate whose session the server has ended
//     may, for less than a lease.
//   - No candidate believes or works when the server ends its session because it was silent, or
//     when its connection is closed while the lock is held.
//   - No lock is released before its work has returned. The work of a caller of Campaign has
//     the drain for that, and its process may be frozen meanwhile.
//   - Tokens rise. Hooks keep their contract.
//   - No write in a transaction of a term is overwritten unseen, or follows one of a later term.
//   - Once all faults are over, somebody leads within a bound.
//   - Once all faults are over, each member leads its share of the shards within a bound, and no
//     shard moves any more.
//   - A member that was frozen for longer than its lease holds nothing that others count.
//   - At the end no candidate, connection, lock, setting or goroutine is left.
//
// # What differs from a real system
//
// A frozen process stops where the library reads the clock or calls its driver, and where the
// simulated work does; not between any two instructions. A statement takes no time on the
// server. A clock that is set forward ends a term at the next check of the clock; work until
// then is no violation. The seed does not control the Go scheduler: events of one instant may
// change their order when a plan runs again.
package simulation
