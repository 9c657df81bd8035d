package dashboard

import (
	"cmp"
	"slices"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/shard"
)

// shards is a group of shards, which the page shows in one section.
type shards struct {
	group  string
	shards map[int64]bool // the keys
	seats  map[int64]bool
}

func newShards(group string, names []string) shards {
	s := shards{group: group, shards: map[int64]bool{}, seats: map[int64]bool{}}
	for _, name := range names {
		s.shards[elector.KeyFromName(shard.Election(group, name))] = true
	}
	for _, name := range shard.Seats(group) {
		s.seats[elector.KeyFromName(name)] = true
	}
	return s
}

// spread is how a group's shards are spread over its members.
type spread struct {
	ID      int // of the section
	Group   string
	Shards  int
	Led     int
	Leaders int // members that lead a shard
	Members []share
	More    int // members not shown
}

type share struct {
	ID     string
	Shards int
}

// of returns the spread by the server's locks.
func (s shards) of(locks []db.AdvisoryLocksRow) spread {
	p := spread{Group: s.group, Shards: len(s.shards)}
	members := map[int32]*share{}
	for _, row := range locks {
		if !row.Granted || row.Deputy || !s.shards[row.Key] && !s.seats[row.Key] {
			continue
		}
		m := members[row.Pid]
		if m == nil {
			m = &share{ID: cmp.Or(row.ApplicationName, "without a name")}
			members[row.Pid] = m
		}
		if s.shards[row.Key] {
			m.Shards++
			p.Led++
		}
	}
	for _, m := range members {
		p.Members = append(p.Members, *m)
		if m.Shards > 0 {
			p.Leaders++
		}
	}
	slices.SortFunc(p.Members, func(a, b share) int { return cmp.Or(cmp.Compare(a.ID, b.ID), b.Shards-a.Shards) })
	p.More = max(0, len(p.Members)-maxCandidates)
	p.Members = p.Members[:len(p.Members)-p.More]
	return p
}

// withoutShards returns the facts about other elections than those of the groups.
func (f facts) withoutShards(groups []shards) facts {
	ours := func(key int64) bool {
		return slices.ContainsFunc(groups, func(s shards) bool { return s.shards[key] || s.seats[key] })
	}
	f.locks = without(f.locks, func(row db.AdvisoryLocksRow) bool { return ours(row.Key) })
	f.candidates = without(f.candidates, func(c roster.Candidate) bool { return ours(c.Key) })
	f.terms = without(f.terms, func(t roster.Term) bool { return ours(t.Key) })
	return f
}

func without[T any](all []T, drop func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), drop)
}
