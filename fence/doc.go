// Package fence checks a fencing token as part of a write, for stores other than the
// election's database. (In that database use the elector's Term.InTx, which needs no
// token.)
//
//	tx, err := store.BeginTx(ctx, nil)
//	err = fence.Advance(ctx, tx, "reports", term.Token()) // ErrStale if a newer leader wrote
//	…                                                     // the writes of the term
//	err = tx.Commit()
//
// # What is not promised
//
// A token fences only what every writer checks: a write without a token, or around the
// check, is not refused. Until the new leader writes for the first time, the store does
// not know its token, and accepts the old leader's writes. So a leader that reads before
// it writes must pass the fence before it reads: with [Advance] in the reading
// transaction, or with any request through [Handler].
//
// # How a token fences
//
// A term's token is larger than those of all earlier terms. A store keeps the largest
// token that it has seen, and refuses smaller ones. The check and the write must be one
// step: between a separate check and its write, a newer leader may write. There are three
// ways:
//
//   - [Advance] locks a guard row in the caller's transaction, so that the next leader
//     waits for the end of the transaction.
//   - [Applied] is for a single conditional UPDATE … WHERE token <= $n.
//   - [Transport] and [Handler] send and check the token by HTTP. The handler makes the
//     requests of a newer token wait for those of older ones.
//
// # When tokens fall
//
// A store may outlive the election's server. After a pg_upgrade, a dump and restore, or
// the loss of a promoted branch, new tokens can be smaller, and every new leader gets
// [ErrStale]. Then raise the epoch of the election's database, with ALTER DATABASE … SET
// pgelector.epoch: the upper 16 bits of the largest token in the store are always enough.
// (pgelector doctor --last-token prints the smallest sufficient epoch.) The store needs no
// change.
//
// The package imports only the standard library. Its SQL is PostgreSQL's, for any driver.
package fence
