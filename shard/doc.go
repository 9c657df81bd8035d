// Package shard spreads many elections evenly over the processes that run them. Each shard
// of a group, such as a partition, a tenant or a queue, is an election, and each live member
// of the group leads its share.
//
//	shards, err := shard.NewSet("eu", "us", "asia") // or shard.Numbers(64)
//	err = shard.Run(ctx, pool, "billing", shards, func(ctx context.Context, name string, term *elector.Term) error {
//		… // until ctx is done
//	})
//
// # What is not promised
//
//   - As in any election, no lock stops a process that runs on after its term. Fence writes
//     with the term's token or InTx.
//   - The spread counts shards, not their load.
//   - While members come and go, the spread may be uneven and a shard may have no leader.
//
// # The spread
//
// Once things are quiet, each of m members leads n/m of n shards, rounded down or up. A
// member that joins or leaves moves only the difference: no two members exchange shards.
// A member with too many shards gives up those that it was elected for last, a few at a time
// ([WithMoves]). The work on a shard returns before its lock is released.
//
// # How members are counted
//
// Each member holds a seat: one more election, named after the group and a number, such as
// "billing#17", on the session that leads its shards. So a member that is killed, cut off or
// frozen loses its seat together with its shards, at the latest when its lease ends. There is no
// table. Each member asks about ten times a second which seats are taken ([WithInterval]). That
// statement tries the locks of the seats, and reads no list of locks: its cost does not depend
// on the number of shards. Only a member with room for more shards looks which are free.
//
// A member has its place in the order of the taken seats. The first n%m members lead one
// shard more than the others. So every member knows its share from the count alone.
//
// The election of a shard is named after the group and the shard: "billing/eu" ([Election]).
// The commands and the dashboard show it like any other. Hooks given to [WithSession] hear of
// all shards and of the seat.
package shard
