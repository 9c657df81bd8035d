package dashboard

import (
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/roster"
)

// page is the data of the template.
type page struct {
	Title     string
	Refresh   int // seconds; 0 is never
	Paused    bool
	At        moment
	Alerts    []string
	Groups    []spread
	Elections []election
	Others    []other // locks of other elections and programs
	MoreOther int     // others not shown
	HasRoster bool
	Style     template.CSS
	Search    string
	Found     int // groups and elections, on all pages
	Page      int // its number, from 1
	Pages     int
}

// Link returns the address of another page of the same search.
func (p page) Link(number int, paused bool) string {
	query := url.Values{}
	if p.Search != "" {
		query.Set("q", p.Search)
	}
	if number > 1 {
		query.Set("page", strconv.Itoa(number))
	}
	if paused {
		query.Set("refresh", "off")
	}
	return "?" + query.Encode()
}

// All returns the address of the page without a search.
func (p page) All() string { p.Search = ""; return p.Link(1, p.Paused) }

// Previous and Next return the numbers of the pages beside this one, 0 if there is none.
func (p page) Previous() int { return p.Page - 1 }
func (p page) Next() int     { return (p.Page + 1) % (p.Pages + 1) }

// election is one section.
type election struct {
	Name       string
	Key        string
	Leader     *candidate
	Deputy     string
	Since      moment // when the term began, or the last one ended
	Token      string
	For        string // how long the term or the session has lasted
	Candidates []candidate
	More       int // candidates not shown
	Timeline   *timeline
	Terms      []term
}

// candidate is one line of an election.
type candidate struct {
	ID       string
	Role     role
	Colour   string // class of its bars in the timeline; "" without bars
	Version  string
	Health   string
	Share    string // value of a meter; "" if the health is not between 0 and 1
	Seen     string
	Session  string // backend, user and address
	Waiting  string // how long
	Metadata []pair
	Hidden   int // pairs of metadata not shown

	recorded *roster.Candidate // nil if the roster does not know it
}

// other is a session that holds another lock or waits for one.
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

// role is the role of a candidate, and a class of the style sheet.
type role string

const (
	leads   role = "leads"
	deputy  role = "deputy"  // holds the deputy's seat
	waits   role = "waits"   // in the server's queue
	blocks  role = "blocks"  // keeps the lock from all candidates
	follows role = "follows" // by the roster
	silent  role = "silent"
	left    role = "left"
)

// rank orders the candidates.
var rank = map[role]int{leads: 0, deputy: 1, waits: 2, follows: 3, silent: 4, left: 5}

// moment is a point in time.
type moment struct{ Text, ISO string }

func at(t time.Time) moment {
	t = t.UTC()
	return moment{t.Format("2006-01-02 15:04:05"), t.Format(time.RFC3339)}
}

// Bounds that keep the page readable.
const (
	perPage       = 50 // groups and elections
	maxCandidates = 50
	maxTerms      = 50 // in the timeline
	maxTermsInAll = 5000
	maxListed     = 8 // in the list below it
	maxOthers     = 50
)

// page returns the page of the last facts. failed says why they are not current.
func (h *Handler) page(f facts, failed error, query url.Values) page {
	p := page{Title: h.title, Refresh: int(h.refresh / time.Second), HasRoster: h.roster != nil, Style: template.CSS(style),
		Search: clipped(strings.TrimSpace(query.Get("q"))), Paused: query.Get("refresh") == "off", Page: 1, Pages: 1}
	if failed != nil {
		p.Alerts = append(p.Alerts, "No current data: "+failed.Error())
	}
	if f.at.IsZero() {
		return p
	}
	p.At = at(f.at)
	if failed != nil {
		p.Alerts = append(p.Alerts, fmt.Sprintf("This page shows the state of %s ago, at %s UTC.", lasting(time.Since(f.seen)), p.At.Text))
	}
	if f.rosterErr != nil {
		p.Alerts = append(p.Alerts, "The roster could not be read: "+f.rosterErr.Error())
	}
	var groups []spread
	for i, s := range h.groups {
		row := s.of(f.locks)
		row.ID = i + 1
		groups = append(groups, row)
	}
	all, others := group(f.withoutShards(h.groups), h.names, h.roster != nil)
	if p.Search != "" {
		groups = without(groups, func(s spread) bool { return !p.finds(s.Group) })
		all = without(all, func(g *found) bool {
			return !p.finds(g.name) && !slices.ContainsFunc(g.candidates, func(c *candidate) bool { return p.finds(c.ID) })
		})
		others = without(others, func(o other) bool { return !p.finds(o.ID) && !p.finds(o.Key) })
	}
	p.Found = len(groups) + len(all)
	p.Pages = max(1, (p.Found+perPage-1)/perPage)
	number, _ := strconv.Atoi(query.Get("page"))
	p.Page = min(max(number, 1), p.Pages)
	p.Groups = part(groups, (p.Page-1)*perPage)
	budget := maxOnPage
	for _, g := range part(all, (p.Page-1)*perPage-len(groups)) {
		p.Elections = append(p.Elections, g.election(f.at, h.window, &budget))
	}
	if p.Page == p.Pages {
		p.MoreOther = max(0, len(others)-maxOthers)
		p.Others = others[:len(others)-p.MoreOther]
	}
	return p
}

// finds reports whether the search is in a text.
func (p page) finds(text string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(p.Search))
}

// part returns what of all is on the page that begins at from.
func part[T any](all []T, from int) []T {
	within := func(i int) int { return min(max(i, 0), len(all)) }
	return all[within(from):within(from+perPage)]
}

// election returns the section of an election. budget is the number of bytes left for metadata.
func (g *found) election(now time.Time, window time.Duration, budget *int) election {
	e := election{Name: g.name, Key: strconv.FormatInt(g.key, 10)}
	colours := colour(g.terms)
	for _, c := range g.candidates {
		c.Colour = colours[c.ID]
		e.Candidates = append(e.Candidates, *c)
	}
	slices.SortStableFunc(e.Candidates, func(a, b candidate) int { return rank[a.Role] - rank[b.Role] })
	if i := slices.IndexFunc(e.Candidates, func(c candidate) bool { return c.Role == deputy }); i >= 0 {
		e.Deputy = e.Candidates[i].ID
	}
	if len(e.Candidates) > 0 && e.Candidates[0].Role == leads {
		leader := e.Candidates[0]
		e.Leader = &leader
		if since := g.led; !since.IsZero() {
			e.For, e.Since = "for "+lasting(now.Sub(since)), at(since)
		} else if since := g.connected; !since.IsZero() {
			e.For, e.Since = "session for "+lasting(now.Sub(since)), at(since)
			e.Since.Text += " (session)"
		}
		if len(g.terms) > 0 && g.terms[0].Reason == "" && g.terms[0].CandidateID == leader.ID {
			e.Token = strconv.FormatInt(g.terms[0].Token, 10)
			e.For, e.Since = "for "+lasting(now.Sub(g.terms[0].ElectedAt)), at(g.terms[0].ElectedAt)
		}
	} else if len(g.terms) > 0 && !g.terms[0].EndedAt.IsZero() {
		e.For, e.Since = "for "+lasting(now.Sub(g.terms[0].EndedAt)), at(g.terms[0].EndedAt)
	}
	e.More = max(0, len(e.Candidates)-maxCandidates)
	e.Candidates = e.Candidates[:len(e.Candidates)-e.More]
	for i := range e.Candidates {
		if c := &e.Candidates[i]; c.recorded != nil {
			c.Metadata, c.Hidden = metadata(*c.recorded, budget)
		}
	}
	for _, t := range g.terms[:min(len(g.terms), maxListed)] {
		e.Terms = append(e.Terms, listed(t, colours, now))
	}
	e.Timeline = draw(g.terms, colours, now, window)
	return e
}

// listed returns the line of a term.
func listed(t roster.Term, colours map[string]string, now time.Time) term {
	line := term{Candidate: t.CandidateID, Colour: colours[t.CandidateID], Token: strconv.FormatInt(t.Token, 10),
		From: at(t.ElectedAt), Reason: strings.ReplaceAll(t.Reason, "_", " ")}
	if t.Reason != string(hooks.Resigned) && t.Reason != string(hooks.Shutdown) { // their errors say nothing new
		line.Err = t.Err
	}
	switch {
	case t.Reason == "":
		line.Lasted, line.Reason = lasting(now.Sub(t.ElectedAt)), "current"
	case t.EndedAt.IsZero():
		line.Lasted = "unknown"
	default:
		line.Lasted = lasting(t.EndedAt.Sub(t.ElectedAt))
	}
	return line
}

// record adds the roster's record of a candidate.
func (c *candidate) record(r roster.Candidate, now time.Time) {
	c.Version, c.Seen = r.Version, lasting(now.Sub(r.PublishedAt))+" ago"
	if r.Health != nil {
		c.Health = strconv.FormatFloat(*r.Health, 'g', 4, 64)
		if *r.Health >= 0 && *r.Health <= 1 {
			c.Share = strconv.FormatFloat(*r.Health, 'f', 4, 64)
		}
	}
	c.recorded = &r
	if c.Role != "" { // known by the server
		return
	}
	c.Role = map[roster.State]role{roster.Live: follows, roster.Silent: silent, roster.Left: left}[r.State]
}

// lasting formats a duration in its two largest units.
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

// Bounds of what the page shows of candidates. Package roster publishes little more, but
// whoever may write its tables may write anything.
const (
	maxText   = 200       // bytes of one text
	maxPairs  = 20        // pairs of a candidate's metadata
	maxOnPage = 128 << 10 // bytes of all metadata
)

// clip cuts every text of the candidates except metadata.
func (f *facts) clip() {
	for i := range f.locks {
		row := &f.locks[i]
		clipAll(&row.ApplicationName, &row.Usename, &row.ClientAddr)
	}
	for i := range f.candidates {
		c := &f.candidates[i]
		clipAll(&c.Election, &c.ID, &c.Version)
	}
	for i := range f.terms {
		t := &f.terms[i]
		clipAll(&t.Election, &t.CandidateID, &t.Reason, &t.Err)
	}
}

func clipAll(texts ...*string) {
	for _, text := range texts {
		*text = clipped(*text)
	}
}

// clipped returns text, cut to maxText bytes.
func clipped(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// metadata returns the pairs to show, and the number of the others. It subtracts the shown
// bytes from budget.
func metadata(c roster.Candidate, budget *int) (shown []pair, more int) {
	for i, key := range slices.Sorted(maps.Keys(c.Metadata)) {
		p := pair{clipped(key), clipped(c.Metadata[key])}
		if size := len(p.Key) + len(p.Value); i < maxPairs && size <= *budget {
			*budget -= size
			shown = append(shown, p)
			continue
		}
		return shown, len(c.Metadata) - i
	}
	return shown, 0
}

// timeline shows who led when.
type timeline struct {
	Label    string // text alternative
	Bars     []bar
	From, To moment
	Legend   []entry // of bars without a candidate
}

// entry explains a class of bars.
type entry struct{ Class, Text string }

// bar is one bar, on a scale of 0 to span.
type bar struct {
	X, Width int
	Class    string
	Title    string
}

const (
	span   = 1000
	narrow = 2 // minimum width of a bar
	hues   = 8 // in the style sheet
	vacant = "vacant"
	nobody = "unknown"
	minGap = 3 // minimum width of a gap
)

// colour assigns a colour to each candidate that led, in order of their terms.
func colour(terms []roster.Term) map[string]string {
	of := map[string]string{}
	for _, t := range slices.Backward(terms) {
		if of[t.CandidateID] == "" {
			of[t.CandidateID] = fmt.Sprintf("c%d", len(of)%hues)
		}
	}
	return of
}

// draw returns the timeline of terms, given newest first, or nil if there are none.
func draw(terms []roster.Term, colours map[string]string, now time.Time, window time.Duration) *timeline {
	if len(terms) == 0 {
		return nil
	}
	from := now.Add(-window)
	if oldest := terms[len(terms)-1].ElectedAt; oldest.After(from) {
		from = oldest
	}
	s := scale{from: from, length: now.Sub(from)}
	if s.length <= 0 { // the first term has just begun
		s.length = time.Second
	}
	t := &timeline{From: at(from), To: at(now)}
	last := from // the end of the last bar
	shown := 0
	for _, term := range slices.Backward(terms) {
		until, known := end(term, now)
		if until.Before(from) {
			continue
		}
		shown++
		t.gap(s, last, term.ElectedAt, vacant, "nobody led")
		title := fmt.Sprintf("%s led from %s for %s", term.CandidateID, at(term.ElectedAt).Text, lasting(until.Sub(term.ElectedAt)))
		class := colours[term.CandidateID]
		switch {
		case term.Reason == "":
			title += ", and still leads"
		case !known:
			title, class = fmt.Sprintf("%s led from %s; the end is unknown", term.CandidateID, at(term.ElectedAt).Text), nobody
		default:
			title += ": " + term.Reason
		}
		t.bar(s, term.ElectedAt, until, class, title)
		last = until
	}
	t.gap(s, last, now, vacant, "nobody led")
	for _, e := range []entry{{vacant, "nobody led"}, {nobody, "unknown"}} {
		if slices.ContainsFunc(t.Bars, func(b bar) bool { return b.Class == e.Class }) {
			t.Legend = append(t.Legend, e)
		}
	}
	t.Label = fmt.Sprintf("Timeline of %d terms, from %s to %s UTC", shown, t.From.Text, t.To.Text)
	return t
}

// end returns when a term ended, if it is known.
func end(t roster.Term, now time.Time) (until time.Time, known bool) {
	switch {
	case !t.EndedAt.IsZero():
		return t.EndedAt, true
	case t.Reason == "":
		return now, true
	}
	return now, false
}

// scale maps times to the timeline.
type scale struct {
	from   time.Time
	length time.Duration
}

func (s scale) place(t time.Time) int {
	share := float64(t.Sub(s.from)) / float64(s.length)
	return int(min(max(share, 0), 1) * span)
}

func (t *timeline) bar(s scale, from, until time.Time, class, title string) {
	x := min(s.place(from), span-narrow)
	t.Bars = append(t.Bars, bar{X: x, Width: max(s.place(until)-x, narrow), Class: class, Title: title})
}

// gap adds a bar if it is wide enough to see.
func (t *timeline) gap(s scale, from, until time.Time, class, title string) {
	if s.place(until)-s.place(from) >= minGap {
		t.bar(s, from, until, class, fmt.Sprintf("%s from %s for %s", title, at(from).Text, lasting(until.Sub(from))))
	}
}
