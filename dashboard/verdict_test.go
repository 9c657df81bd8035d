package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
)

// published is what a candidate published this long ago. Its interval is 15 s.
func published(id string, ago time.Duration, health float64, unhealthy bool) roster.Candidate {
	c := roster.Candidate{Election: "orders", Key: elector.KeyFromName("orders"), CandidateID: id, State: roster.Live, Health: &health, IsHealthy: new(!unhealthy),
		PublishedAt: noon.Add(-ago), NextBy: noon.Add(17*time.Second - ago)}
	if ago > 45*time.Second {
		c.State = roster.Silent
	}
	return c
}

func departed(id string) roster.Candidate {
	c := published(id, time.Hour, 0.9, false)
	c.State = roster.Left
	return c
}

// session is that of the leader, with a lease of 10 s and a last statement this long ago.
func session(id string, ago time.Duration) db.AdvisoryLocksRow {
	return db.AdvisoryLocksRow{Key: elector.KeyFromName("orders"), Granted: true, Pid: 7, ApplicationName: id, LeaseMillis: 10_000, LastMicros: noon.Add(-ago).UnixMicro()}
}

func TestARowSaysWhatIsWrongAndNothingIsGoodThatIsNotKnownToBeWell(t *testing.T) {
	hidden := session("a", 0)
	hidden.LastMicros = 0
	stranger := session("psql", time.Hour)
	stranger.LeaseMillis = 0
	queued := session("b", time.Hour)
	queued.Granted, queued.WaitingMicros = false, noon.Add(-time.Hour).UnixMicro()
	blocker := session("c", time.Second)
	blocker.Granted, blocker.Blocks = false, "ShareLock"
	well := published("a", 15*time.Second, 0.9, false)
	for _, c := range []struct {
		what       string
		locks      []db.AdvisoryLocksRow
		candidates []roster.Candidate
		want       string
	}{
		{"a leader that was seen", []db.AdvisoryLocksRow{session("a", time.Second)}, []roster.Candidate{well}, "3 good led"},
		{"a leader whose session alone is known", []db.AdvisoryLocksRow{session("a", 5*time.Second)}, nil, "3 good led"},
		{"a leader whose session is hidden", []db.AdvisoryLocksRow{hidden}, []roster.Candidate{well}, "3 good led"},
		{"a leader of which nothing is known", []db.AdvisoryLocksRow{hidden}, nil, "3 plain led"},
		{"another program", []db.AdvisoryLocksRow{stranger}, nil, "3 plain led"},
		{"a leader that has just left", []db.AdvisoryLocksRow{hidden}, []roster.Candidate{departed("a")}, "3 plain led"},
		{"a follower that waits in the server", []db.AdvisoryLocksRow{session("a", 0), queued}, []roster.Candidate{well, published("b", 20*time.Second, 1, false)},
			"2 warn a candidate has published nothing for 20 s"},
		{"a frozen leader", []db.AdvisoryLocksRow{session("a", 6*time.Second)}, []roster.Candidate{well}, "2 warn the leader was not seen for 6 s"},
		{"a leader that cannot publish", []db.AdvisoryLocksRow{session("a", 0)}, []roster.Candidate{published("a", 20*time.Second, 0.9, false)},
			"2 warn the leader has published nothing for 20 s"},
		{"a leader that is hidden and cannot publish", []db.AdvisoryLocksRow{hidden}, []roster.Candidate{published("a", 20*time.Second, 0.9, false)},
			"2 warn the leader was not seen for 20 s"},
		{"a follower that missed its interval", []db.AdvisoryLocksRow{session("a", 0)}, []roster.Candidate{well, published("b", 18*time.Second, 0.2, true)},
			"2 bad led without a deputy: b was not seen for 18 s"},
		{"two that are gone", []db.AdvisoryLocksRow{session("a", 0)}, []roster.Candidate{well, published("b", time.Minute, 1, false), published("c", time.Hour, 1, false)},
			"2 bad led without a deputy: b was not seen for 1 min 0 s, c was not seen for 1 h 0 min"},
		{"an unhealthy follower, and one that is gone", []db.AdvisoryLocksRow{session("a", 0)}, []roster.Candidate{well, published("b", time.Second, 0.3, true), published("c", time.Hour, 1, false)},
			"1 warn a candidate is unhealthy (0.3), plain 2 candidates, 3 a day ago: c was not seen for 1 h 0 min"},
		{"one that is gone, and another that follows", []db.AdvisoryLocksRow{session("a", 0)}, []roster.Candidate{well, published("b", time.Second, 1, false), published("c", time.Hour, 1, false)},
			"3 good led, plain 2 candidates, 3 a day ago: c was not seen for 1 h 0 min"},
		{"an unhealthy leader", []db.AdvisoryLocksRow{session("a", 0)}, []roster.Candidate{published("a", time.Second, 0.1, true)}, "1 warn the leader is unhealthy (0.1)"},
		{"nobody healthy", nil, []roster.Candidate{published("a", time.Second, 0.3, true), published("b", time.Second, 0.1, true), departed("c")},
			"0 bad nobody leads: no candidate is healthy (0.1, 0.3)"},
		{"nobody healthy, and one gone", nil, []roster.Candidate{published("a", time.Second, 0.3, true), published("b", time.Minute, 1, false)},
			"0 bad nobody leads: no candidate is healthy (0.3), plain 1 candidate, 2 a day ago: b was not seen for 1 min 0 s"},
		{"nobody seen", nil, []roster.Candidate{published("a", time.Hour, 1, false), published("b", time.Minute, 1, false)}, "0 bad nobody leads: no candidate was seen for 1 min 0 s"},
		{"one that could lead", nil, []roster.Candidate{well}, "0 bad nobody leads"},
		{"a session in the way", []db.AdvisoryLocksRow{blocker}, []roster.Candidate{well}, "0 bad nobody leads: another session keeps the lock"},
		{"all have left", nil, []roster.Candidate{departed("a")}, "3 plain nobody leads: all candidates have left"},
	} {
		all, _ := group(facts{at: noon, locks: c.locks, candidates: c.candidates}, nil, len(c.candidates) > 0)
		v := all[0].judge(noon, len(c.candidates) > 0, "a day ago")
		var marks []string
		for _, m := range v.Marks {
			marks = append(marks, m.Class+" "+m.Text)
		}
		if got := fmt.Sprint(int(v.need), " ", strings.Join(marks, ", ")); got != c.want {
			t.Errorf("%s: got %q\nwant %q", c.what, got, c.want)
		}
	}
}

// Its last publication is not old yet.
func TestALeaderThatWasKilledAMomentAgoDoesNotFollow(t *testing.T) {
	killed := roster.Term{Election: "orders", Key: elector.KeyFromName("orders"), CandidateID: "b", ElectedAt: noon.Add(-time.Hour), EndedAt: noon.Add(-3 * time.Second), Reason: roster.Lost}
	unknown, told, earlier := killed, killed, killed
	unknown.EndedAt = time.Time{}
	told.Reason = "session_lost"
	earlier.EndedAt = noon.Add(-time.Minute)
	for want, term := range map[string]roster.Term{"led without a deputy: b was not seen for 10 s": killed, "led without a deputy: b was not seen for 10 s, ": unknown, "led": told, "led, ": earlier} {
		all, _ := group(facts{at: noon, locks: []db.AdvisoryLocksRow{session("a", 0)}, terms: []roster.Term{term},
			candidates: []roster.Candidate{published("a", time.Second, 1, false), published("b", 10*time.Second, 1, false)}}, nil, true)
		if got := all[0].judge(noon, true, "a day ago").Marks[0].Text; got != strings.TrimSuffix(want, ", ") {
			t.Errorf("after %+v: %q", term, got)
		}
	}
}

func TestANamedElectionWithoutCandidatesIsAProblem(t *testing.T) {
	h := pageOf(t, facts{}, nil, WithElections("orders"))
	h.roster = new(roster.Roster)
	for want, f := range map[string]facts{
		"nobody leads: no candidate is known":          {at: noon},
		"nobody leads: all candidates have left":       {at: noon, candidates: []roster.Candidate{departed("a")}},
		"nobody leads: another session keeps the lock": {at: noon, locks: []db.AdvisoryLocksRow{{Key: elector.KeyFromName("orders"), Blocks: "ShareLock", Pid: 7}}},
	} {
		if p := h.page(f, nil, nil); p.Problems != 1 || p.Rows[0].Election.Marks[0].Text != want {
			t.Errorf("%d problems, %+v, want %q", p.Problems, p.Rows[0].Election.Marks, want)
		}
	}
}

func TestRowsAreSortedByNeedAndTheTitleCountsProblems(t *testing.T) {
	f := facts{at: noon}
	add := func(election string, c roster.Candidate, leads bool) {
		c.Election, c.Key = election, elector.KeyFromName(election)
		f.candidates = append(f.candidates, c)
		if leads {
			row := session(c.CandidateID, 0)
			row.Key = c.Key
			f.locks = append(f.locks, row)
		}
	}
	add("well", published("a", 0, 1, false), true)
	add("a-silent", published("a", 0, 1, false), true)
	add("a-silent", published("b", time.Minute, 1, false), false)
	add("b-unhealthy", published("a", 0, 0.1, true), true)
	add("c-vacant", published("a", 0, 1, false), false)
	add("also-well", published("a", 0, 1, false), true)
	row := session("a", 6*time.Second)
	row.Key = elector.KeyFromName("group/1")
	f.locks = append(f.locks, row)
	h := pageOf(t, f, nil, WithShards("empty", "1"), WithShards("group", "1"), WithElections("well"))
	h.roster = new(roster.Roster)
	names := func(p page) (names []string) {
		for _, r := range p.Rows {
			names = append(names, r.name)
		}
		return names
	}
	p := h.page(f, nil, nil)
	if want := []string{"empty", "c-vacant", "b-unhealthy", "group", "a-silent", "well", "also-well"}; !slices.Equal(names(p), want) || p.Heading() != "5 problems – Elections" {
		t.Errorf("%s: the rows are %q\nwant %q", p.Heading(), names(p), want)
	}
	if p := h.page(f, nil, map[string][]string{"q": {"well"}}); p.Heading() != "5 problems – Elections" || len(p.Rows) != 2 {
		t.Errorf("%s: a search finds %q", p.Heading(), names(p))
	}
	if p := h.page(f, errAway, nil); p.Heading() != "No current data – Elections" || strings.Contains(fmt.Sprint(p.Rows[5].Election.Marks), "good") || p.Rows[5].Election.Leader.Class() != "plain" {
		t.Errorf("while the server is away: %s, %+v", p.Heading(), p.Rows[5].Election)
	}
	if p := pageOf(t, facts{}, nil).page(facts{at: noon}, nil, nil); p.Heading() != "Elections" {
		t.Errorf("without problems: %s", p.Heading())
	}
}

func TestASeatOfAGroupIsExplained(t *testing.T) {
	f := facts{at: noon}
	for _, name := range []string{"import/0", "import#73", "orders#1", "import#x"} {
		f.candidates = append(f.candidates, roster.Candidate{Election: name, Key: elector.KeyFromName(name), CandidateID: "a", State: roster.Live, NextBy: noon})
	}
	body := get(pageOf(t, f, nil), http.MethodGet, "/").Body.String()
	if n := strings.Count(body, "a member of the group import holds this seat, to be counted"); n != 2 { // its row and its section
		t.Errorf("it is explained %d times", n)
	}
}

func TestALeaderShowsItsPriority(t *testing.T) {
	row := session("a", time.Second)
	for priority, want := range map[int32]string{0: "9 s left", -12: "9 s left; priority -12"} {
		row.Priority = priority
		if c := holder(row, noon); !strings.HasSuffix(c.Lease, want) {
			t.Errorf("of priority %d: got %q", priority, c.Lease)
		}
	}
	row.Granted, row.Deputy = false, true // which has led before, on this session
	if c := holder(row, noon); c.Lease != "" {
		t.Errorf("a deputy shows %q", c.Lease)
	}
}
