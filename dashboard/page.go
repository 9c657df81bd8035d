package dashboard

import (
	"cmp"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// page is the data of the template.
type page struct {
	Title     string
	Refresh   int // seconds; 0 is never
	Paused    bool
	At        moment
	Away      string // why there is no current data; "" if there is
	AwayFor   string // the age of the data
	RosterErr string // why the roster could not be read
	Problems  int    // rows with a problem, on all pages
	Rows      []row
	Others    []other // locks of other elections and programs
	MoreOther int     // others not shown
	HasRoster bool
	HasHealth bool // a leader has a score
	HasSince  bool // of an election it is known since when it is led, or not
	HasTerms  bool // an election has a timeline
	Script    template.JS
	Since     string // how far back the timelines of the overview go; "" if there are none
	Style     template.CSS
	Search    string
	Focus     bool // the field of the search has the focus
	Found     int  // groups and elections, on all pages
	Page      int  // its number, from 1
	Pages     int
}

// row is one line of the overview and one section: an election or a group of shards.
type row struct {
	Election *election
	Group    *spread

	name   string
	group  *spread
	found  *found
	judged verdict
}

// Heading is the title of the document, which a tab of the browser shows.
func (p page) Heading() string {
	switch {
	case p.Away != "":
		return "No current data – " + p.Title
	case p.Problems == 0:
		return p.Title
	}
	return counted(p.Problems, "problem") + " – " + p.Title
}

// Summary is the same for the page itself.
func (p page) Summary() string {
	switch {
	case p.Problems > 0:
		return counted(p.Problems, "problem")
	case p.Found == 0 || p.Search != "":
		return ""
	}
	return "no known problem"
}

// counted returns a number with its noun.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
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

// Type returns the address of this page at rest, where the field of the search has the focus.
func (p page) Type() string { return p.Link(p.Page, true) + "&focus=q" }

// All returns the address of the page without a search.
func (p page) All() string { p.Search = ""; return p.Link(1, p.Paused) }

// Previous and Next return the numbers of the pages beside this one, 0 if there is none.
func (p page) Previous() int { return p.Page - 1 }
func (p page) Next() int     { return (p.Page + 1) % (p.Pages + 1) }

// Bounds that keep the page readable.
const (
	perPage       = 50 // groups and elections
	maxCandidates = 50
	maxTerms      = 50 // in the timeline
	maxTermsInAll = 5000
	maxListed     = 8 // in the list below it
	maxOthers     = 50
)

// before says how far back the roster remembers candidates.
func (h *Handler) before() string {
	const day = 24 * time.Hour
	if h.roster == nil || h.roster.ForgetAfter() == 0 || h.roster.ForgetAfter() == day {
		return "a day ago"
	}
	return lasting(h.roster.ForgetAfter()) + " ago"
}

// page returns the page of the last facts. failed says why they are not current.
func (h *Handler) page(f facts, failed error, query url.Values) page {
	p := page{Title: h.title, Refresh: int(h.refresh / time.Second), HasRoster: h.roster != nil, Style: template.CSS(style), Script: template.JS(script),
		Search: clipped(strings.TrimSpace(query.Get("q"))), Paused: query.Get("refresh") == "off", Focus: query.Get("focus") == "q", Page: 1, Pages: 1}
	if failed != nil {
		p.Away = failed.Error()
	}
	if f.at.IsZero() {
		return p
	}
	p.At = at(f.at)
	if failed != nil {
		p.AwayFor = lasting(time.Since(f.seen))
	}
	if f.rosterErr != nil {
		p.RosterErr = f.rosterErr.Error()
		p.Problems++
	}
	rows, others := h.rows(f, failed == nil)
	for _, r := range rows {
		if r.judged.isProblem() {
			p.Problems++
		}
	}
	if p.Search != "" {
		rows = without(rows, func(r row) bool { return !p.findsRow(r) })
		others = without(others, func(o other) bool { return !p.finds(o.ID) && !p.finds(o.Key) })
	}
	p.Found = len(rows)
	p.Pages = max(1, (p.Found+perPage-1)/perPage)
	number, _ := strconv.Atoi(query.Get("page"))
	p.Page = min(max(number, 1), p.Pages)
	from := (p.Page - 1) * perPage
	p.show(rows[from:min(from+perPage, len(rows))], f.at, h.window)
	if p.Page == p.Pages {
		p.MoreOther = max(0, len(others)-maxOthers)
		p.Others = others[:len(others)-p.MoreOther]
	}
	return p
}

// rows returns the groups and elections, sorted by need: first those that nobody leads. Equal ones
// keep their order: groups, then the named elections, then those of the roster by name.
func (h *Handler) rows(f facts, current bool) ([]row, []other) {
	var rows []row
	for i, s := range h.groups {
		g := s.of(f.locks, f.at)
		g.ID = i + 1
		rows = append(rows, row{name: g.Group, group: &g, judged: g.judged})
	}
	all, others := group(f.withoutShards(h.groups), h.names, h.roster != nil)
	for _, g := range all {
		rows = append(rows, row{name: g.name, found: g, judged: g.judge(f.at, h.roster != nil && f.rosterErr == nil, h.before())})
	}
	for i := range rows {
		if !current {
			rows[i].age()
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.judged.need, b.judged.need) })
	return rows, others
}

// age makes nothing good that was good when the server last answered.
func (r *row) age() {
	for i := range r.judged.Marks {
		if m := &r.judged.Marks[i]; m.Class == "good" {
			m.Class = "plain"
		}
	}
	if r.group != nil {
		r.group.judged = r.judged
	}
	if r.found != nil {
		for _, c := range r.found.candidates {
			c.Well = false
		}
	}
}

// show fills the page's rows.
func (p *page) show(rows []row, now time.Time, window time.Duration) {
	var oldest time.Time
	for _, r := range rows {
		if r.found == nil || len(r.found.terms) == 0 {
			continue
		}
		if from := r.found.terms[len(r.found.terms)-1].ElectedAt; oldest.IsZero() || from.Before(oldest) {
			oldest = from
		}
	}
	if !oldest.IsZero() {
		window = min(window, max(now.Sub(oldest), time.Second))
		p.Since = "last " + about(window)
	}
	budget, colours := maxOnPage, map[string]string{}
	for _, r := range rows {
		if r.Group = r.group; r.found != nil {
			e := r.found.election(now, window, &budget, colours)
			e.verdict = r.judged
			p.HasHealth = p.HasHealth || e.Leader != nil && e.Leader.Health != ""
			p.HasSince, p.HasTerms = p.HasSince || e.Since.For != "", p.HasTerms || e.Strip != nil
			r.Election = &e
		}
		p.Rows = append(p.Rows, r)
	}
}

func (p page) findsRow(r row) bool {
	return p.finds(r.name) || r.found != nil && slices.ContainsFunc(r.found.candidates, func(c *candidate) bool { return p.finds(c.ID) })
}

// finds reports whether the search is in a text.
func (p page) finds(text string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(p.Search))
}
