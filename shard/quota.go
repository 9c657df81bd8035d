package shard

import (
	"hash/fnv"
	"slices"
)

// maxMembers is the number of seats of a group.
const maxMembers = 128

// quota is how many of n shards the member on a seat leads, and the place of the first of
// them in the order of shards. seats are those taken, in order. The first n%m members have
// one shard more than the others: a member that joins takes from nobody more than one
// rounding, and one that leaves makes no other give up any.
func quota(n int, seats []int, seat int) (share, start int) {
	rank, taken := slices.BinarySearch(seats, seat)
	if !taken {
		return 0, 0
	}
	base, extra := n/len(seats), n%len(seats)
	start = rank*base + min(rank, extra)
	if rank < extra {
		base++
	}
	return base, start
}

// firstFree is a free seat: the first one from a place that depends on the candidate id, so
// that a member that comes back sits where it sat. It is -1 if there is none.
func firstFree(id string, taken []int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	for i := range maxMembers {
		seat := (int(h.Sum32()%maxMembers) + i) % maxMembers
		if _, found := slices.BinarySearch(taken, seat); !found {
			return seat
		}
	}
	return -1
}
