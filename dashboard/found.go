package dashboard

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
)

// found is what the server and the roster know of one election.
type found struct {
	key        int64
	name       string
	named      bool   // by an option
	note       string // what it is, if its name does not say so
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
	for _, g := range all {
		g.named = true
	}
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
		g.find(c.CandidateID).record(c, f.at)
	}
	for _, t := range f.terms {
		of[t.Key].terms = append(of[t.Key].terms, t)
	}
	for _, g := range all {
		g.endStale()
	}
	noteSeats(all)
	return all, others
}

// endStale ends the newest term if its candidate leads by a later session: it did not record the end.
func (g *found) endStale() {
	began := g.led
	if began.IsZero() { // a shared session does not say
		began = g.connected
	}
	if len(g.terms) > 0 && g.terms[0].Reason == "" && !g.terms[0].ElectedAt.IsZero() && began.After(g.terms[0].ElectedAt) {
		g.terms[0].Reason = roster.Lost
	}
}

// noteSeats explains the elections that members of a group of shards lead to be counted: those
// of a group whose shards are elections, too.
func noteSeats(all []*found) {
	groups := map[string]bool{}
	for _, g := range all {
		if name, _, is := strings.Cut(g.name, "/"); is {
			groups[name] = true
		}
	}
	for _, g := range all {
		name, number, is := strings.Cut(g.name, "#")
		if _, err := strconv.ParseUint(number, 10, 16); is && err == nil && groups[name] {
			g.note = "a member of the group " + name + " holds this seat, to be counted"
		}
	}
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
