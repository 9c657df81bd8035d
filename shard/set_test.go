package shard

import (
	"slices"
	"testing"
)

// shares are those of all members.
func shares(n int, seats []int) map[int]int {
	all := map[int]int{}
	for _, seat := range seats {
		all[seat], _ = quota(n, seats, seat)
	}
	return all
}

func TestTheSharesAreEvenAndCoverAllShards(t *testing.T) {
	for n := range 40 {
		for m := 1; m < 12; m++ {
			var seats []int
			for i := range m {
				seats = append(seats, 3*i)
			}
			sum, next := 0, 0
			for _, seat := range seats {
				share, start := quota(n, seats, seat)
				if share != n/m && share != (n+m-1)/m || start != next {
					t.Fatalf("%d shards, %d members: seat %d has %d from %d, want about %d from %d", n, m, seat, share, start, n/m, next)
				}
				sum, next = sum+share, next+share
			}
			if sum != n {
				t.Fatalf("%d members have %d of %d shards", m, sum, n)
			}
		}
	}
}

// Otherwise members that stay would exchange shards.
func TestNobodyLosesAShardWhenAMemberLeaves(t *testing.T) {
	for n := range 40 {
		for m := 2; m < 12; m++ {
			for left := range m {
				var seats []int
				for i := range m {
					seats = append(seats, i)
				}
				before := shares(n, seats)
				after := shares(n, slices.Delete(seats, left, left+1))
				for seat, share := range after {
					if share < before[seat] {
						t.Fatalf("%d shards, %d members, %d leaves: %d has %d, had %d", n, m, left, seat, share, before[seat])
					}
				}
			}
		}
	}
}

func TestAMemberThatComesBackSitsWhereItSat(t *testing.T) {
	seat := firstFree("web-1", nil)
	if again := firstFree("web-1", []int{(seat + 1) % maxMembers}); again != seat {
		t.Errorf("seat %d, then %d", seat, again)
	}
	if next := firstFree("web-1", []int{seat}); next != (seat+1)%maxMembers {
		t.Errorf("seat %d is taken, and it sits on %d", seat, next)
	}
	var all []int
	for i := range maxMembers {
		all = append(all, i)
	}
	if seat := firstFree("web-1", all); seat != -1 {
		t.Errorf("it sits on %d, and all are taken", seat)
	}
}
