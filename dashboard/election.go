package dashboard

import (
	"slices"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/roster"
)

// election is one line of the overview and one section.
type election struct {
	verdict
	Name       string
	Note       string // what an election is that nobody named
	Key        string
	Leader     *candidate
	Deputy     *candidate
	Since      since // when the term began, or the last one ended
	Token      string
	Candidates []candidate
	HasHealth  bool // a candidate has a score
	HasVersion bool
	HasSeen    bool // a candidate has published
	HasDetails bool // of a candidate
	More       int  // candidates not shown
	Timeline   *timeline
	Strip      *timeline // of the overview: all have one scale
	Terms      []term
}

// since is a time in the past, relative to the page's. It is empty if it is not known.
type since struct {
	For     string
	At      moment
	Session bool // it is the time when the session began, which does not say when its term did
}

func ago(t, now time.Time) since { return since{For: lasting(now.Sub(t)), At: at(t)} }

// Wrap returns the class of the name.
func (e election) Wrap() string { return wrap(e.Name) }

// term is one line of the history.
type term struct {
	ID     string // of its candidate
	Colour string
	Token  string
	From   moment
	Lasted string
	Reason string
	Err    string
}

// Wrap returns the class of the candidate's id.
func (t term) Wrap() string { return wrap(t.ID) }

// election returns what the page shows of an election. The overview has one window for all of
// them. budget is the number of bytes left for metadata. A candidate has one of the colours of the page.
func (g *found) election(now time.Time, window time.Duration, budget *int, colours map[string]string) election {
	e := election{Name: g.name, Note: g.note, Key: strconv.FormatInt(g.key, 10)}
	colour(colours, g.terms)
	for _, c := range g.candidates {
		c.Colour = colours[c.ID]
		e.Candidates = append(e.Candidates, *c)
		e.HasHealth, e.HasVersion = e.HasHealth || c.Health != "", e.HasVersion || c.Version != ""
	}
	slices.SortStableFunc(e.Candidates, func(a, b candidate) int { return rank[a.Role] - rank[b.Role] })
	e.Leader, e.Deputy = first(e.Candidates, leads), first(e.Candidates, deputy)
	e.Since, e.Token = g.since(e.Leader, now)
	e.More = max(0, len(e.Candidates)-maxCandidates)
	e.Candidates = e.Candidates[:len(e.Candidates)-e.More]
	for i := range e.Candidates {
		if c := &e.Candidates[i]; c.recorded != nil {
			c.Metadata, c.Hidden = metadata(*c.recorded, budget)
		}
		e.HasSeen, e.HasDetails = e.HasSeen || e.Candidates[i].Seen != "", e.HasDetails || e.Candidates[i].hasDetails()
	}
	for _, t := range g.terms[:min(len(g.terms), maxListed)] {
		e.Terms = append(e.Terms, line(t, colours, now))
	}
	if len(g.terms) > 0 {
		e.Strip = draw(g.terms, colours, now.Add(-window), now)
		e.Timeline = draw(g.terms, colours, later(now.Add(-window), g.terms[len(g.terms)-1].ElectedAt), now)
	}
	return e
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// first returns a copy of the first candidate with that role, or nil.
func first(all []candidate, r role) *candidate {
	i := slices.IndexFunc(all, func(c candidate) bool { return c.Role == r })
	if i < 0 {
		return nil
	}
	c := all[i]
	return &c
}

// since returns when the leader was elected, and its token. If nobody leads it returns when the
// last term ended.
func (g *found) since(leader *candidate, now time.Time) (since, string) {
	var last roster.Term
	if len(g.terms) > 0 {
		last = g.terms[0]
	}
	switch {
	case leader == nil && last.EndedAt.IsZero():
		return since{}, ""
	case leader == nil:
		return ago(last.EndedAt, now), ""
	case last.Reason == "" && last.CandidateID == leader.ID && !last.ElectedAt.IsZero():
		return ago(last.ElectedAt, now), strconv.FormatInt(last.Token, 10)
	case !g.led.IsZero():
		return ago(g.led, now), ""
	case !g.connected.IsZero():
		s := ago(g.connected, now)
		s.Session = true
		return s, ""
	}
	return since{}, ""
}

// line returns the line of a term.
func line(t roster.Term, colours map[string]string, now time.Time) term {
	l := term{ID: t.CandidateID, Colour: colours[t.CandidateID], Token: strconv.FormatInt(t.Token, 10),
		From: at(t.ElectedAt), Reason: sentence(t.Reason)}
	if t.Reason != string(hooks.Resigned) && t.Reason != string(hooks.Shutdown) { // their errors say nothing new
		l.Err = t.Err
	}
	switch {
	case t.Reason == "":
		l.Lasted, l.Reason = lasting(now.Sub(t.ElectedAt)), "current"
	case t.EndedAt.IsZero():
		l.Lasted = "unknown"
	default:
		l.Lasted = lasting(t.EndedAt.Sub(t.ElectedAt))
	}
	return l
}
