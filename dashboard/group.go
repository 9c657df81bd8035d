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
)

// found is what the server and the roster know of one election.
type found struct {
	key        int64
	name       string
	candidates []*candidate
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
		g.connected = db.Time(row.ConnectedMicros)
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
