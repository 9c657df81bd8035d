package shard

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/lockkey"
)

// A Set is the names of a group's shards. All members of a group should have the same. Its
// methods may be called from any goroutine. The zero Set has no shards.
type Set struct {
	mu      sync.Mutex
	names   []string      // in order
	changed chan struct{} // closed by the next Replace; nil if nobody waits for it
}

// maxBytes bounds the name of a group and that of a shard.
const maxBytes = 500

// NewSet makes a set of shards. Each name has 1 to 500 bytes, and satisfies elector.CheckElection. A
// name that is there twice counts once. The error wraps elector.ErrConfig.
func NewSet(names ...string) (*Set, error) {
	s := &Set{}
	return s, s.Replace(names...)
}

// Numbers makes a set of n shards, named "0" to n-1.
func Numbers(n int) *Set {
	var names []string
	for i := range n {
		names = append(names, strconv.Itoa(i))
	}
	s, _ := NewSet(names...) // numbers are valid names
	return s
}

// Replace changes the set. Each [Run] that has it gives up the shards that are gone, in
// order, and shares out those that are new. On an error nothing has changed.
func (s *Set) Replace(names ...string) error {
	for _, name := range names {
		if err := check("shard", name); err != nil {
			return err
		}
	}
	names = slices.Clone(names)
	slices.Sort(names)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = slices.Compact(names)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return nil
}

// Names lists the shards in alphabetical order.
func (s *Set) Names() []string {
	names, _ := s.now()
	return slices.Clone(names)
}

// now returns the names, which the caller does not change, and a channel that the next
// change closes.
func (s *Set) now() ([]string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.names, s.changed
}

func check(what, name string) error {
	if err := lockkey.CheckName(name, maxBytes); err != nil {
		return fmt.Errorf("%w: name of a %s %w", elector.ErrConfig, what, err)
	}
	return nil
}

// CheckGroup returns an error that wraps elector.ErrConfig unless a group may have that name: 1 to 500 bytes
// without "/" and "#", which could make two elections of the same name, and else what elector.CheckElection wants.
func CheckGroup(name string) error {
	if strings.ContainsAny(name, "/#") {
		return fmt.Errorf(`%w: name of a group %q: want one without "/" and "#"`, elector.ErrConfig, name)
	}
	return check("group", name)
}

// Election is the name of a shard's election: the group, a slash and the shard.
func Election(group, shard string) string { return group + "/" + shard }

// Seats lists the elections that members of a group lead in order to be counted.
func Seats(group string) (elections []string) {
	for seat := range maxMembers {
		elections = append(elections, seatElection(group, seat))
	}
	return elections
}

// seatElection is the name of the election that a member of a group leads to be counted.
func seatElection(group string, seat int) string { return group + "#" + strconv.Itoa(seat) }

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
