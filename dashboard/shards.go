package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
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

// found is what the server and the roster know of one election.
type found struct {
	key        int64
	name       string
	candidates []*candidate
	led        time.Time // since when the leader leads; zero if its session does not say so
	connected  time.Time // when the leader's session began; zero if nobody leads or it is hidden
	terms      []roster.Term
}

// group collects the facts by election: first the named elections in order, then those of
// the roster by name. Locks of no known election are others. Without names and a roster,
// every key is an election.
func group(f facts, names []string, hasRoster bool) (all []*found, others []other) {
	of := map[int64]*found{}
	add := func(key int64, name string) {
		if of[key] == nil {
			of[key] = &found{key: key, name: name}
			all = append(all, of[key])
		}
	}
	for _, name := range names {
		add(elector.KeyFromName(name), name)
	}
	named := len(all)
	for _, c := range f.candidates {
		add(c.Key, c.Election)
	}
	for _, t := range f.terms {
		add(t.Key, t.Election)
	}
	slices.SortStableFunc(all[named:], func(a, b *found) int { return cmp.Compare(a.name, b.name) })
	for _, row := range f.locks {
		if len(names) == 0 && !hasRoster {
			add(row.Key, "key "+strconv.FormatInt(row.Key, 10))
		}
		if g := of[row.Key]; g != nil {
			g.holds(row, f.at)
		} else {
			others = append(others, other{strconv.FormatInt(row.Key, 10), holder(row, f.at)})
		}
	}
	for _, c := range f.candidates {
		g := of[c.Key]
		g.find(c.ID).record(c, f.at)
	}
	for _, t := range f.terms {
		of[t.Key].terms = append(of[t.Key].terms, t)
	}
	return all, others
}

// holds adds a session that holds the lock or a seat, or waits for the lock.
func (g *found) holds(row db.AdvisoryLocksRow, now time.Time) {
	c := holder(row, now)
	g.candidates = append(g.candidates, &c)
	if row.Granted {
		g.led, g.connected = db.Time(row.SinceMicros), db.Time(row.ConnectedMicros)
	}
}

// find returns the candidate with the id, and adds it if there is none.
func (g *found) find(id string) *candidate {
	for _, c := range g.candidates {
		if c.ID == id {
			return c
		}
	}
	c := &candidate{ID: id}
	g.candidates = append(g.candidates, c)
	return c
}

// holder returns the candidate of a session.
func holder(row db.AdvisoryLocksRow, now time.Time) candidate {
	c := candidate{ID: cmp.Or(row.ApplicationName, "without a name"), Role: leads, Session: fmt.Sprintf("backend %d, user %s", row.Pid, row.Usename)}
	if row.ClientAddr != "" {
		c.Session += ", from " + row.ClientAddr
	}
	switch {
	case row.Blocks != "":
		c.Role, c.Session = blocks, db.Blocker(row.Pid, row.ApplicationName, row.Usename, row.Blocks, row.Prepared)
	case row.Deputy:
		c.Role = deputy
	case !row.Granted:
		c.Role = waits
	}
	if row.WaitingMicros != 0 {
		c.Waiting = "waiting for " + lasting(now.Sub(db.Time(row.WaitingMicros)))
	}
	return c
}
