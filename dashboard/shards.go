package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"time"

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
	judged  verdict
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
	Unseen string // for how long its session has been silent; "" if it is not
	well   bool   // its session is known not to be silent
}

// Marks returns the badges of the group.
func (p spread) Marks() []mark { return p.judged.Marks }

// Wrap returns the class of the name.
func (p spread) Wrap() string { return wrap(p.Group) }

// Wrap returns the class of the id.
func (m share) Wrap() string { return wrap(m.ID) }

// of returns the spread by the server's locks.
func (s shards) of(locks []db.AdvisoryLocksRow, now time.Time) spread {
	p := spread{Group: s.group, Shards: len(s.shards)}
	members := map[int32]*share{}
	for _, row := range locks {
		if !row.Granted || row.Deputy || !s.shards[row.Key] && !s.seats[row.Key] {
			continue
		}
		m := members[row.Pid]
		if m == nil {
			c := holder(row, now)
			c.assess(now)
			m = &share{ID: c.ID, Unseen: c.Unseen, well: c.Well}
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
	p.judge()
	p.More = max(0, len(p.Members)-maxCandidates)
	p.Members = p.Members[:len(p.Members)-p.More]
	return p
}

// judge says what the group needs.
func (p *spread) judge() {
	switch free := p.Shards - p.Led; {
	case p.Led == 0:
		p.judged.add(leaderless, "bad", "nobody leads any shard")
	case free > 0:
		p.judged.add(leaderless, "bad", "nobody leads "+counted(free, "shard"))
	}
	well := true
	var silent []share
	for _, m := range p.Members {
		well = well && m.well
		if m.Unseen != "" {
			silent = append(silent, m)
		}
	}
	switch {
	case len(silent) == 1:
		p.judged.add(unheard, "warn", fmt.Sprintf("%s was not seen for %s", silent[0].ID, silent[0].Unseen))
	case len(silent) > 1:
		p.judged.add(unheard, "warn", fmt.Sprintf("%d members were not seen", len(silent)))
	case len(p.judged.Marks) > 0:
	case well:
		p.judged.add(none, "good", "all led")
	default:
		p.judged.add(none, "plain", "all led")
	}
}

// withoutShards returns the facts about elections that belong to none of the groups.
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
