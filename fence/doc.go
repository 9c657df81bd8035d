// Package fence makes the check of a fencing token part of the write, for
// stores other than the election's own database. (In that one, the elector's
// Term.InTx needs no token.)
//
// # What is not promised
//
// A token fences only what every writer passes: a write that carries none, or
// goes around the check, is not refused. And until the new leader has written
// for the first time, a store has not heard of its token, and takes the old
// leader's writes. So a leader that reads before it writes must pass the fence
// before it reads: by [Advance] in the reading transaction, or by any request
// through [Handler].
//
// # How a token fences
//
// A term's token is larger than those of all earlier terms. A store remembers the
// largest that it has seen and refuses what comes with a smaller one. The check
// and the write must be one step: a check that is made first can be true, and
// the write late. Hence three forms, each of which keeps the two together:
//
//   - [Advance] is a guard row: a first statement in the caller's transaction,
//     whose row lock keeps the next leader waiting until that has ended.
//   - [Applied] is for a single conditional UPDATE … WHERE token <= $n.
//   - [Transport] and [Handler] carry the token by HTTP. The handler keeps the
//     requests of a newer token waiting until those of older ones have returned.
//
// # When tokens fall
//
// A store remembers its largest token for longer than the election's server may
// live. After a pg_upgrade, a dump and restore, or the loss of a promoted branch, new
// tokens can be smaller, and [ErrStale] is returned to every new leader. Then raise
// the epoch of the election's database, by ALTER DATABASE … SET pgelector.epoch; the
// upper 16 bits of the largest token in the store are always enough. (pgelector
// doctor --last-token tells the least that is.) The store itself needs no change.
//
// The package has no dependency but the standard library, and needs no driver
// in particular; its SQL is that of PostgreSQL.
package fence
