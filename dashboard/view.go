package dashboard

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/roster"
)

// page is what the template shows: texts, ready to be read.
type page struct {
	Title     string
	Refresh   int // seconds; 0 is never
	Paused    bool
	At        moment
	Alerts    []string
	Elections []election
	More      int     // elections that are not shown
	Others    []other // locks of none of these elections
	MoreOther int     // that are not shown
	HasRoster bool
	Style     template.CSS
}

// election is one section.
type election struct {
	ID         int // of the section
	Name       string
	Key        string
	Leader     *candidate
	Token      string
	For        string // how long the leader has led, or its session has lasted
	Candidates []candidate
	More       int // candidates that are not shown
	Timeline   *timeline
	Terms      []term
}

// candidate is one line of an election.
type candidate struct {
	ID       string
	Role     role
	Colour   string // class of its bars in the timeline; "" if it has none
	Version  string
	Health   string
	Share    string // of a meter; "" if the health is no share
	Seen     string
	Session  string // backend, user and address
	Waiting  string // for how long
	Metadata []pair
	Hidden   int // pairs of metadata that are not shown

	recorded *roster.Candidate // nil if the roster does not know it
}

// other is a session that holds another lock, or waits for it.
type other struct {
	Key string
	candidate
}

type pair struct{ Key, Value string }

// term is one line of the history.
type term struct {
	Candidate string
	Colour    string
	Token     string
	From      moment
	Lasted    string
	Reason    string
	Err       string
}

// role is what a candidate does, and a class of the style sheet.
type role string

const (
	leads   role = "leads"
	waits   role = "waits"   // parked in the server
	follows role = "follows" // polls, as the roster knows
	silent  role = "silent"
	left    role = "left"
)

// rank is the order in which candidates are shown.
var rank = map[role]int{leads: 0, waits: 1, follows: 2, silent: 3, left: 4}

// moment is a point in time, for people and for programs.
type moment struct{ Text, ISO string }

func at(t time.Time) moment {
	t = t.UTC()
	return moment{t.Format("2006-01-02 15:04:05"), t.Format(time.RFC3339)}
}

// How much is shown at the most, so that the page stays one that can be read.
const (
	maxElections  = 100
	maxCandidates = 50
	maxTerms      = 50 // in the timeline
	maxListed     = 8  // in the list below it
	maxOthers     = 50
)

// page makes the page of what was seen; failed is why it is not of now.
func (h *Handler) page(f facts, failed error) page {
	p := page{Title: h.title, Refresh: int(h.refresh / time.Second), HasRoster: h.roster != nil, Style: template.CSS(style)}
	if failed != nil {
		p.Alerts = append(p.Alerts, "The server could not be asked: "+failed.Error())
	}
	if f.at.IsZero() {
		return p
	}
	p.At = at(f.at)
	if failed != nil {
		p.Alerts = append(p.Alerts, fmt.Sprintf("What follows was so %s ago, at %s UTC.", lasting(time.Since(f.seen)), p.At.Text))
	}
	if f.rosterErr != nil {
		p.Alerts = append(p.Alerts, "The roster could not be read: "+f.rosterErr.Error())
	}
	all, others := group(f, h.names, h.roster != nil)
	p.MoreOther = max(0, len(others)-maxOthers)
	p.Others = others[:len(others)-p.MoreOther]
	p.More = max(0, len(all)-maxElections)
	room := maxOnPage
	for i, g := range all[:len(all)-p.More] {
		e := g.election(f.at, h.window, &room)
		e.ID = i + 1
		p.Elections = append(p.Elections, e)
	}
	return p
}

// election makes a section of a group. room is what the page has left for metadata.
func (g *gathered) election(now time.Time, window time.Duration, room *int) election {
	e := election{Name: g.name, Key: strconv.FormatInt(g.key, 10)}
	colours := colour(g.terms)
	for _, c := range g.candidates {
		c.Colour = colours[c.ID]
		e.Candidates = append(e.Candidates, *c)
	}
	slices.SortStableFunc(e.Candidates, func(a, b candidate) int { return rank[a.Role] - rank[b.Role] })
	if len(e.Candidates) > 0 && e.Candidates[0].Role == leads {
		leader := e.Candidates[0]
		e.Leader = &leader
		if since := g.connected; !since.IsZero() {
			e.For = "session for " + lasting(now.Sub(since))
		}
		if len(g.terms) > 0 && g.terms[0].Reason == "" && g.terms[0].CandidateID == leader.ID {
			e.Token = strconv.FormatInt(g.terms[0].Token, 10)
			e.For = "for " + lasting(now.Sub(g.terms[0].ElectedAt))
		}
	}
	e.More = max(0, len(e.Candidates)-maxCandidates)
	e.Candidates = e.Candidates[:len(e.Candidates)-e.More]
	for i := range e.Candidates {
		if c := &e.Candidates[i]; c.recorded != nil {
			c.Metadata, c.Hidden = metadata(*c.recorded, room)
		}
	}
	for _, t := range g.terms[:min(len(g.terms), maxListed)] {
		e.Terms = append(e.Terms, listed(t, colours, now))
	}
	e.Timeline = draw(g.terms, colours, now, window)
	return e
}

// listed is the line of a term.
func listed(t roster.Term, colours map[string]string, now time.Time) term {
	line := term{Candidate: t.CandidateID, Colour: colours[t.CandidateID], Token: strconv.FormatInt(t.Token, 10),
		From: at(t.ElectedAt), Reason: strings.ReplaceAll(t.Reason, "_", " ")}
	if t.Reason != string(hooks.Resigned) && t.Reason != string(hooks.Shutdown) { // which say all
		line.Err = t.Err
	}
	switch {
	case t.Reason == "":
		line.Lasted, line.Reason = lasting(now.Sub(t.ElectedAt)), "goes on"
	case t.EndedAt.IsZero():
		line.Lasted = "nobody knows how long"
	default:
		line.Lasted = lasting(t.EndedAt.Sub(t.ElectedAt))
	}
	return line
}

// told adds to a candidate what the roster knows of it.
func (c *candidate) told(r roster.Candidate, now time.Time) {
	c.Version, c.Seen = r.Version, lasting(now.Sub(r.PublishedAt))+" ago"
	if r.Health != nil {
		c.Health = strconv.FormatFloat(*r.Health, 'g', 4, 64)
		if *r.Health >= 0 && *r.Health <= 1 {
			c.Share = strconv.FormatFloat(*r.Health, 'f', 4, 64)
		}
	}
	c.recorded = &r
	if c.Role != "" { // the server knows better
		return
	}
	c.Role = map[roster.State]role{roster.Live: follows, roster.Silent: silent, roster.Left: left}[r.State]
}

// lasting is a duration in its two largest units.
func lasting(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
