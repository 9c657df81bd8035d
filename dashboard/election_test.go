package dashboard

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
)

func TestADurationHasItsTwoLargestUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 999 * time.Millisecond: "0 s", 59 * time.Second: "59 s", time.Minute: "1 min 0 s",
		3*time.Hour + 59*time.Minute + 59*time.Second: "3 h 59 min", 49 * time.Hour: "2 d 1 h",
	} {
		if got := lasting(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestElectionsAreTheNamedFirstThenThoseOfTheRosterByName(t *testing.T) {
	f := facts{at: noon,
		candidates: []roster.Candidate{{Election: "zebra", Key: 5, CandidateID: "z", State: roster.Live}, {Election: "ant", Key: 4, CandidateID: "a", State: roster.Left}},
		locks: []db.AdvisoryLocksRow{
			{Key: elector.KeyFromName("orders"), Granted: true, ApplicationName: "web-1"},
			{Key: 5, Granted: true, ApplicationName: "z"}, {Key: 77, Granted: true, ApplicationName: "stranger"},
		},
	}
	all, others := group(f, []string{"orders", "billing"}, true)
	var names []string
	for _, g := range all {
		names = append(names, g.name)
	}
	if got := strings.Join(names, " "); got != "orders billing ant zebra" {
		t.Errorf("got %s", got)
	}
	if len(others) != 1 || others[0].Key != "77" || others[0].ID != "stranger" {
		t.Errorf("others are %+v", others)
	}
	if e := all[3].election(noon, time.Hour, new(int), map[string]string{}); e.Leader == nil || e.Leader.ID != "z" || len(e.Candidates) != 1 {
		t.Errorf("the candidate that the server and the roster know is %+v", e.Candidates)
	}
	if e := all[1].election(noon, time.Hour, new(int), map[string]string{}); e.Leader != nil || e.Timeline != nil {
		t.Errorf("an election without candidates is %+v", e)
	}
	if all, others = group(facts{at: noon, locks: f.locks}, nil, false); len(all) != 3 || all[2].name != "key 77" || len(others) != 0 {
		t.Errorf("without names and a roster: %d elections, and others %+v", len(all), others)
	}
}

func TestWithoutTermsTheLeadersSessionSaysSinceWhenItLeads(t *testing.T) {
	row := db.AdvisoryLocksRow{Key: 5, Granted: true, ApplicationName: "web-1", ConnectedMicros: noon.Add(-2 * time.Hour).UnixMicro()}
	since := func() string {
		all, _ := group(facts{at: noon, locks: []db.AdvisoryLocksRow{row}}, nil, false)
		e := all[0].election(noon, time.Hour, new(int), map[string]string{})
		return fmt.Sprintf("for %s, since %s, session: %v", e.Since.For, e.Since.At.Text, e.Since.Session)
	}
	if got, want := since(), "for 2 h 0 min, since 2026-11-21 10:00:00, session: true"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	row.SinceMicros = noon.Add(-time.Minute).UnixMicro()
	if got, want := since(), "for 1 min 0 s, since 2026-11-21 11:59:00, session: false"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCandidatesAreShownByWhatTheyDo(t *testing.T) {
	f := factsOf("orders")
	f.candidates = append(f.candidates, roster.Candidate{Key: f.candidates[0].Key, CandidateID: "gone", State: roster.Left},
		roster.Candidate{Key: f.candidates[0].Key, CandidateID: "polls", State: roster.Live, NextBy: noon}, roster.Candidate{Key: f.candidates[0].Key, CandidateID: "next", State: roster.Live, NextBy: noon})
	f.locks = append(f.locks, db.AdvisoryLocksRow{Key: f.candidates[0].Key, Deputy: true, ApplicationName: "next"})
	all, _ := group(f, nil, true)
	all[0].judge(noon, true, "a day ago")
	e := all[0].election(noon, 24*time.Hour, new(int), map[string]string{})
	var got []string
	for _, c := range e.Candidates {
		got = append(got, fmt.Sprintf("%s %s", c.ID, c.Role))
	}
	if want := []string{"orders leads", "next deputy", "orders2 waits", "polls follows", "orders3 unseen", "gone left"}; !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if e.Token != "20" || e.Since.For != "1 h 0 min" || e.Since.At.ISO != "2026-11-21T11:00:00Z" || e.Deputy.ID != "next" || e.Leader.Health != "0.25" || e.Leader.Share != "0.2500" {
		t.Errorf("the leader is %+v, %+v", e, e.Leader)
	}
}

func TestMoreThanCanBeReadIsCountedAndNotShown(t *testing.T) {
	f := facts{at: noon}
	for i := range 3 * perPage {
		f.candidates = append(f.candidates, roster.Candidate{Key: int64(i), Election: fmt.Sprintf("%03d", i), CandidateID: "one", State: roster.Live})
	}
	for i := range 3 * maxCandidates {
		f.candidates = append(f.candidates, roster.Candidate{Key: 0, CandidateID: fmt.Sprint(i), State: roster.Left})
	}
	for i := range 3 * maxOthers {
		f.locks = append(f.locks, db.AdvisoryLocksRow{Key: int64(-1 - i), Granted: true})
	}
	h := pageOf(t, f, nil, WithElections("named"))
	if p := h.page(f, nil, url.Values{"page": {"4"}}); len(p.Others) != maxOthers || p.MoreOther != 2*maxOthers {
		t.Errorf("on the last page %d other locks are shown, and %d not", len(p.Others), p.MoreOther)
	}
	p := h.page(f, nil, nil)
	if len(p.Rows) != perPage || p.Found != 3*perPage+1 || p.Pages != 4 || len(p.Others) != 0 {
		t.Errorf("%d of %d elections are on one of %d pages, and %d other locks", len(p.Rows), p.Found, p.Pages, len(p.Others))
	}
	if e := p.Rows[1].Election; len(e.Candidates) != maxCandidates || e.More != 2*maxCandidates+1 || e.Candidates[0].ID != "one" {
		t.Errorf("%d candidates are shown, and %d not", len(e.Candidates), e.More)
	}
}

func TestPagesAndASearchHoldEachElectionAndGroupOnce(t *testing.T) {
	f := facts{at: noon}
	for i := range 120 {
		f.candidates = append(f.candidates, roster.Candidate{Key: int64(i + 1), Election: fmt.Sprintf("job-%03d", i), CandidateID: fmt.Sprintf("Web-%d", i%10), State: roster.Live})
	}
	f.locks = []db.AdvisoryLocksRow{{Key: 777, Granted: true, ApplicationName: "web-7, a stranger"}, {Key: 778, Granted: true}}
	h := pageOf(t, f, nil, WithShards("a", "1"), WithShards("b", "1"))
	h.roster = new(roster.Roster)
	for query, want := range map[string]string{
		"":                "1/3 of 122: a b job-000…job-047, 0 others",
		"page=2":          "2/3 of 122: job-048…job-097, 0 others",
		"page=3":          "3/3 of 122: job-098…job-119, 2 others",
		"page=4":          "3/3 of 122: job-098…job-119, 2 others",
		"page=-1":         "1/3 of 122: a b job-000…job-047, 0 others",
		"page=x":          "1/3 of 122: a b job-000…job-047, 0 others",
		"q=JOB-00&page=7": "1/1 of 10: job-000…job-009, 0 others",
		"q=+web-7+":       "1/1 of 12: job-007…job-117, 1 others",
		"q=778":           "1/1 of 0: , 1 others",
		"q=b":             "1/3 of 121: b job-000…job-048, 0 others",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		p := h.page(f, nil, values)
		var names []string
		var elections []string
		for _, r := range p.Rows {
			if r.Group != nil {
				names = append(names, r.name)
			} else {
				elections = append(elections, r.name)
			}
		}
		if n := len(elections); n > 0 {
			names = append(names, elections[0]+"…"+elections[n-1])
		}
		if got := fmt.Sprintf("%d/%d of %d: %s, %d others", p.Page, p.Pages, p.Found, strings.Join(names, " "), len(p.Others)); got != want {
			t.Errorf("%q shows %s\nwant %s", query, got, want)
		}
	}
}

func TestATimelineShowsTermsAndWhenNobodyLed(t *testing.T) {
	hour := func(n int) time.Time { return noon.Add(time.Duration(n-10) * time.Hour) } // noon is hour 10
	newestFirst := []roster.Term{
		{CandidateID: "b", ElectedAt: hour(8)},
		{CandidateID: "a", ElectedAt: hour(4), EndedAt: hour(6), Reason: "shutdown"},
		{CandidateID: "b", ElectedAt: hour(0), EndedAt: hour(4), Reason: roster.Lost},
		{CandidateID: "c", ElectedAt: hour(-5), EndedAt: hour(-4), Reason: "resigned"},
	}
	bars := func(terms []roster.Term, window time.Duration) (got []string) {
		for _, b := range draw(terms, coloured(terms), later(noon.Add(-window), terms[len(terms)-1].ElectedAt), noon).Bars {
			got = append(got, fmt.Sprintf("%s %d-%d", b.Class, b.X, b.X+b.Width))
		}
		return got
	}
	for name, c := range map[string]struct {
		terms  []roster.Term
		window time.Duration
		want   []string
	}{
		"ten hours":               {newestFirst, 10 * time.Hour, []string{"c1 0-400", "c2 400-600", "vacant 600-800", "c1 800-1000"}},
		"from the middle of one":  {newestFirst, 8 * time.Hour, []string{"c1 0-250", "c2 250-500", "vacant 500-750", "c1 750-1000"}},
		"no longer than is known": {newestFirst[:1], 24 * time.Hour, []string{"c0 0-1000"}},
		"nobody leads now":        {newestFirst[1:3], 10 * time.Hour, []string{"c0 0-400", "c1 400-600", "vacant 600-1000"}},
		"a very short one": {[]roster.Term{{CandidateID: "a", ElectedAt: hour(0), EndedAt: hour(0).Add(time.Millisecond), Reason: "resigned"}}, 10 * time.Hour,
			[]string{"c0 0-2", "vacant 0-1000"}},
		"nobody knows until when":  {[]roster.Term{{CandidateID: "a", ElectedAt: hour(0), Reason: roster.Lost}}, 10 * time.Hour, []string{"unknown 0-1000"}},
		"the first has just begun": {[]roster.Term{{CandidateID: "a", ElectedAt: noon}}, time.Hour, []string{"c0 0-2"}},
	} {
		if got := bars(c.terms, c.window); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v\nwant %v", name, got, c.want)
		}
	}
	if got := draw(newestFirst[:1], coloured(newestFirst), noon.Add(-4*time.Hour), noon).Bars; len(got) != 1 || got[0].X != 500 {
		t.Errorf("before the first known term there is %+v", got)
	}
}

// No terms draw anything outside the picture.
func TestNothingIsDrawnOutsideTheTimeline(t *testing.T) {
	for range 2000 {
		var terms []roster.Term
		at := func() time.Time { return noon.Add(time.Duration(rand.Int64N(int64(96*time.Hour))) - 72*time.Hour) }
		for range 1 + rand.IntN(5) {
			term := roster.Term{CandidateID: fmt.Sprint(rand.IntN(12)), ElectedAt: at(), Reason: []string{"", roster.Lost, "resigned"}[rand.IntN(3)]}
			if rand.IntN(2) == 0 {
				term.EndedAt = at()
			}
			terms = append(terms, term)
		}
		for _, b := range draw(terms, coloured(terms), noon.Add(-24*time.Hour), noon).Bars {
			if b.X < 0 || b.Width < narrow || b.X+b.Width > span || b.Class == "" || b.Title == "" {
				t.Fatalf("of %+v is drawn %+v", terms, b)
			}
		}
	}
}

// A role that may write the roster's tables can write megabytes into each column.
func TestMegabytesInTheRosterMakeAShortPage(t *testing.T) {
	long := strings.Repeat("€", 2<<20)
	f := factsOf(long)
	f.locks = append(f.locks, db.AdvisoryLocksRow{Key: 5, Granted: true, ApplicationName: long, Usename: long, ClientAddr: long})
	w := get(pageOf(t, f, nil), "GET", "/")
	body := w.Body.String()
	if len(body) > 64<<10 || strings.Count(body, "€…") < 10 || !utf8.ValidString(body) {
		t.Errorf("%d bytes, of which %d texts are cut", len(body), strings.Count(body, "€…"))
	}
}

// Package roster publishes at most 8 KiB for each.
func TestMuchMetadataOfManyCandidatesIsNotAllShown(t *testing.T) {
	many := map[string]string{}
	for i := range 70 {
		many[fmt.Sprintf("%03d", i)] = strings.Repeat("m", 110)
	}
	f := facts{at: noon}
	for i := range perPage * maxCandidates {
		f.candidates = append(f.candidates, roster.Candidate{Key: int64(i / maxCandidates), CandidateID: fmt.Sprint("candidate ", i),
			State: roster.Live, Metadata: maps.Clone(many)})
	}
	h := pageOf(t, f, nil)
	if size := get(h, "GET", "/").Body.Len(); size > 2<<20 {
		t.Errorf("the page has %d bytes", size)
	}
	p := h.page(f, nil, nil)
	first, last := p.Rows[0].Election.Candidates[0], p.Rows[perPage-1].Election.Candidates[maxCandidates-1]
	if len(first.Metadata) != maxPairs || first.Hidden != 70-maxPairs || first.Metadata[0] != (pair{"000", many["000"]}) {
		t.Errorf("of the first candidate %d pairs are shown, and %d not", len(first.Metadata), first.Hidden)
	}
	if len(last.Metadata) != 0 || last.Hidden != 70 {
		t.Errorf("of the last candidate %d pairs are shown, and %d not", len(last.Metadata), last.Hidden)
	}
}

func TestAGroupOfShardsIsOneSection(t *testing.T) {
	var names []string
	f := facts{at: noon}
	lock := func(election string, pid int32) {
		f.locks = append(f.locks, db.AdvisoryLocksRow{Key: elector.KeyFromName(election), Granted: true, Pid: pid, ApplicationName: fmt.Sprint("web-", pid)})
		f.candidates = append(f.candidates, roster.Candidate{Election: election, Key: elector.KeyFromName(election), CandidateID: fmt.Sprint("web-", pid), State: roster.Live})
	}
	for i := range 1000 {
		names = append(names, fmt.Sprint(i))
		lock(fmt.Sprintf("billing/%d", i), int32(1+i%2))
	}
	lock("billing#17", 1)
	lock("billing#99", 3) // it has no shard yet
	lock("orders", 4)
	f.locks = f.locks[1:]
	body := get(pageOf(t, f, nil, WithShards("billing", names...)), http.MethodGet, "/").Body.String()
	for _, want := range []string{"999 of 1000 shards led", "by 2 members", `web-1</span></th><td data-label="Shards">499<`, `web-2</span></th><td data-label="Shards">500<`, `web-3</span></th><td data-label="Shards">0<`, "led by web-4"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if n, rows := strings.Count(body, "<section"), strings.Count(body, `<a href="#`); n != 2 || rows != 2 {
		t.Errorf("%d sections and %d rows of the overview", n, rows)
	}
	if strings.Contains(body, "billing/") || strings.Contains(body, "billing#") {
		t.Error("the page shows an election of the group")
	}
	pool, _, _ := sqlmock.New()
	defer pool.Close()
	if _, err := New(pool, WithShards("billing")); !errors.Is(err, elector.ErrConfig) {
		t.Errorf("a group without shards: %v", err)
	}
}

// A candidate that was killed did not record the end of its term, and may lead again.
func TestATermOfAnEarlierSessionHasEnded(t *testing.T) {
	for _, c := range []struct {
		what           string
		connected, led time.Time // zero if it is not known
		want           string
	}{
		{"the session began to lead before, in whole seconds", noon.Add(-time.Hour), noon.Add(-time.Second), ""},
		{"the session began to lead later", noon.Add(-time.Hour), noon.Add(time.Second), roster.Lost},
		{"a shared session that is older", noon.Add(-time.Hour), time.Time{}, ""},
		{"a shared session that is younger", noon.Add(time.Second), time.Time{}, roster.Lost},
		{"nothing is known of the session", time.Time{}, time.Time{}, ""},
	} {
		row := session("a", 0)
		for at, into := range map[time.Time]*int64{c.connected: &row.ConnectedMicros, c.led: &row.SinceMicros} {
			if !at.IsZero() {
				*into = at.UnixMicro()
			}
		}
		all, _ := group(facts{at: noon, locks: []db.AdvisoryLocksRow{row},
			terms: []roster.Term{{Election: "orders", Key: row.Key, CandidateID: "a", Token: 7, ElectedAt: noon}}}, nil, true)
		_, token := all[0].since(&candidate{ID: "a"}, noon)
		if got := all[0].terms[0].Reason; got != c.want || (token == "7") != (c.want == "") {
			t.Errorf("%s: the term has ended %q, and its token is shown as %q", c.what, got, token)
		}
	}
}

func coloured(terms []roster.Term) map[string]string {
	of := map[string]string{}
	colour(of, terms)
	return of
}

func TestThePageHasNoColumnThatNobodyFills(t *testing.T) {
	const since, health, led, published, details, version = ">Since<", ">Health<", ">Who led, ", ">Published<", ">Details<", ">Version<"
	key := elector.KeyFromName("orders")
	told := roster.Candidate{Election: "orders", Key: key, CandidateID: "a", State: roster.Live, PublishedAt: noon, NextBy: noon.Add(time.Minute)}
	score, full := 0.9, told
	full.Health, full.Version, full.Metadata = &score, "1.2", map[string]string{"zone": "a"}
	lock := session("a", 0)
	lock.Key, lock.SinceMicros = key, noon.UnixMicro()
	for what, c := range map[string]struct {
		facts facts
		want  []string
	}{
		"nobody leads, and nothing is known":        {facts{}, nil},
		"a follower that says nothing":              {facts{candidates: []roster.Candidate{told}}, []string{published}},
		"a follower that says all":                  {facts{candidates: []roster.Candidate{full}}, []string{health, published, details, version}},
		"a leader that has published nothing":       {facts{locks: []db.AdvisoryLocksRow{lock}}, []string{since, details}},
		"a leader of which the roster knows a term": {facts{locks: []db.AdvisoryLocksRow{lock}, terms: []roster.Term{{Election: "orders", Key: key, CandidateID: "a", Token: 7, ElectedAt: noon}}}, []string{since, led, details}},
	} {
		c.facts.at = noon
		body := get(pageOf(t, c.facts, nil, WithElections("orders"), WithRoster(new(roster.Roster))), http.MethodGet, "/").Body.String()
		for _, column := range []string{since, health, led, published, details, version} {
			if got, want := strings.Contains(body, column), slices.Contains(c.want, column); got != want {
				t.Errorf("%s: the page has a column %s: %v", what, column, got)
			}
		}
	}
}

// Two candidates of a page have two colours, as long as there are some; others share the one that says so.
func TestNoTwoCandidatesShareAColourThatIsNotForAll(t *testing.T) {
	colours, owners := map[string]string{}, map[string]string{}
	for i := range hues + 2 {
		election := []roster.Term{{CandidateID: fmt.Sprint("web-", i), Token: 1, ElectedAt: noon}, {CandidateID: "web-0", Token: 0, ElectedAt: noon}}
		colour(colours, election)
	}
	for id, class := range colours {
		if other := owners[class]; other != "" && class != rest {
			t.Errorf("%s and %s are %s", id, other, class)
		}
		owners[class] = id
	}
	if len(owners) != hues+1 || colours["web-24"] != rest || colours["web-25"] != rest {
		t.Errorf("the colours are %v", colours)
	}
	if strip := draw([]roster.Term{{CandidateID: "web-25", ElectedAt: noon}}, colours, noon.Add(-time.Hour), noon.Add(time.Hour)); !slices.Contains(strip.Legend, entry{rest, "others"}) {
		t.Errorf("the legend is %v", strip.Legend)
	}
	for _, theme := range strings.Split(style, "@media (prefers-color-scheme: dark)")[:2] {
		values := map[string]bool{}
		for _, v := range regexp.MustCompile(`--c\d+: (#\w+);`).FindAllStringSubmatch(theme, -1) {
			values[v[1]] = true
		}
		if len(values) != hues {
			t.Errorf("the style sheet has %d colours in a theme", len(values))
		}
	}
	if rules := regexp.MustCompile(`(?m)^\.c\d+ \{`).FindAllString(style, -1); len(rules) != hues {
		t.Errorf("the style sheet has %d rules of colours", len(rules))
	}
}

func TestANameBreaksBetweenItsPartsIfTheyAreShort(t *testing.T) {
	for name, want := range map[string]string{"web-1": "id short", "orders-7f9c6d5b8-x2k4q-1-9f3ac01be27d4410": "id parts whole",
		strings.Repeat("x", 40): "id whole", strings.Repeat("x", 80): "id", strings.Repeat("part-", 20): "id parts"} {
		if got := wrap(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestALeaseThatCannotBeSeenSaysWhy(t *testing.T) {
	row := session("a", 0)
	row.LastMicros = 0
	for connected, want := range map[int64]string{0: "GRANT pg_read_all_stats", noon.UnixMicro(): "track_activities is off"} {
		row.ConnectedMicros = connected
		if c := holder(row, noon); !strings.Contains(c.Lease, want) {
			t.Errorf("the lease: %q, want %q", c.Lease, want)
		}
	}
}
