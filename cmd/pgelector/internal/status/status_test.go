package status

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/roster"
)

// led returns an election that a session leads. Its key is its place.
func led(key int64, pid int32) Election {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return Election{Key: key, Leader: &Candidate{ID: "web-1", PID: pid, User: "app", SessionSince: &at}, Waiting: []Candidate{}}
}

func table(t *testing.T, s Snapshot) (names []string) {
	t.Helper()
	var text strings.Builder
	if err := s.WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(text.String()), "\n")[1:] {
		name, _, _ := strings.Cut(line, "  ")
		names = append(names, name)
	}
	return names
}

func named(key int64, name string) roster.Candidate {
	return roster.Candidate{Key: key, Election: name, CandidateID: "web-1", State: roster.Live}
}

func TestTheUnnamedOfOneSessionAreOneRowThatANoteExplains(t *testing.T) {
	s := Snapshot{Elections: []Election{led(1, 7), led(2, 7), led(3, 7), led(4, 8)}}
	if got := strings.Join(table(t, s), ", "); got != "3 unnamed, of one session, key 4" {
		t.Errorf("the rows are %s", got)
	}
	if notes := s.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "the member's seat") {
		t.Errorf("the notes are %q", notes)
	}
	if notes := (Snapshot{Elections: []Election{led(1, 7), led(2, 8)}}).Notes(); len(notes) != 0 {
		t.Errorf("what stands in the help is repeated at each call: %q", notes)
	}
}

func TestARosterGivesNamesTokensAndElectionsThatNobodyLeads(t *testing.T) {
	s := Snapshot{Elections: []Election{led(1, 7), led(2, 7), led(3, 7), led(4, 8), led(5, 9), led(6, 10), led(7, 11)}}
	began := s.Elections[0].Leader.SessionSince.Add(time.Hour)
	s.Elections[2].Leader.LeadingSince = &began // another session of the same candidate led before, and did not record its end
	s.Elections[3].Leader.SessionSince = &began // likewise, and a shared session does not say since when it leads
	silent := named(9, "silent")
	silent.State = roster.Silent
	s.tell([]roster.Candidate{named(1, "import/a"), named(2, "import/b"), named(3, "import#73"), named(5, "orders"), named(6, "lone#1"), named(8, "vacant"), silent},
		[]roster.Term{{Key: 3, CandidateID: "web-1", Token: 911, ElectedAt: began.Add(-time.Second)}, {Key: 4, CandidateID: "web-1", Token: 910, ElectedAt: began.Add(-time.Second)}, {Key: 5, CandidateID: "web-1", Token: 912, ElectedAt: began}, {Key: 6, CandidateID: "web-1", Token: 7, Reason: "lost"}, {Key: 7, Election: "past", CandidateID: "web-2", Token: 8}})
	if got := strings.Join(table(t, s), ", "); got != "import: 2 shards, lone#1, orders, past, vacant, , key 4" {
		t.Errorf("the rows are %s", got)
	}
	var text strings.Builder
	_ = s.WriteTable(&text)
	lines := strings.Split(text.String(), "\n")
	if at := strings.Index(lines[0], "TOKEN"); at < 0 || strings.Index(lines[3], "912") != at {
		t.Errorf("the token is not below its heading:\n%s", text.String())
	}
	for _, e := range s.Elections {
		if want := map[string]int64{"orders": 912}[e.Name]; e.Token != want {
			t.Errorf("%s has the token %d, want %d", e.Name, e.Token, want)
		}
	}
}

func TestAnElectionThatTheServerDidNotListIsNotSaidToHaveNoLeader(t *testing.T) {
	s := Snapshot{Cut: true, Elections: []Election{led(1, 7)}}
	s.tell([]roster.Candidate{named(1, "import"), named(8, "hidden")}, nil)
	if len(s.Elections) != 1 {
		t.Errorf("it shows %+v", s.Elections)
	}
}

func TestWithoutARosterTheJSONHasNoToken(t *testing.T) {
	text, err := json.Marshal(led(1, 7))
	if err != nil || strings.Contains(string(text), "token") {
		t.Errorf("got %s, %v", text, err)
	}
	e := led(1, 7)
	e.Token = 912
	if text, err = json.Marshal(e); err != nil || !strings.Contains(string(text), `"token":"912"`) {
		t.Errorf("got %s, %v", text, err)
	}
}

func TestElectionsThatWereNamedKeepTheirOrderAndRows(t *testing.T) {
	s := Snapshot{asked: true, Elections: []Election{led(2, 7), led(1, 7), led(3, 7)}}
	for i, name := range []string{"import/b", "import/a", "import#73"} {
		s.Elections[i].Name = name
	}
	s.tell([]roster.Candidate{named(8, "vacant")}, nil)
	if got := strings.Join(table(t, s), ", "); got != "import/b, import/a, import#73" {
		t.Errorf("the rows are %s", got)
	}
}

// Whoever may write to the roster may write a name that looks like a row of its own.
func TestANameOfTheRosterThatDoesNotPrintIsQuoted(t *testing.T) {
	s := Snapshot{Elections: []Election{led(1, 7), led(2, 8), led(3, 8)}}
	s.tell([]roster.Candidate{named(1, "orders\nbilling  leads"), named(2, "im\u202eport/a"), named(3, "im\u202eport#73")}, nil)
	if got := strings.Join(table(t, s), ", "); got != `"im\u202eport": 1 shard, "orders\nbilling` {
		t.Errorf("the rows are %s", got)
	}
}

func TestALeaderShowsItsPriority(t *testing.T) {
	c := Candidate{LeaseMillis: 10_000, Priority: -12}
	if got := c.lease(); got != "10s, priority -12" {
		t.Errorf("got %q", got)
	}
	text, err := json.Marshal(c)
	if err != nil || !strings.Contains(string(text), `"priority":-12`) {
		t.Errorf("got %s, %v", text, err)
	}
}
