package results

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func sample(system, fault string, gap float64) Failover {
	return Failover{System: system, Fault: fault, Gap: &gap, Cap: 1}
}

func TestAFileHasOneLineForEachSample(t *testing.T) {
	r := &Results{Command: "make bench", Date: time.Unix(7, 0).UTC(), Systems: []System{{Name: "one"}},
		Failovers: []Failover{sample("one", "kill", 1), sample("one", "kill", 2), {System: "one"}}}
	file := filepath.Join(t.TempDir(), "results.json")
	if err := r.Save(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n{\"System\"")); n != 3 {
		t.Errorf("%d lines begin with a sample, want 3:\n%s", n, text)
	}
	again, err := Load(file)
	if err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("got %+v (%v), want %+v", again, err, r)
	}
}

func TestARunKeepsWhatItHasNotMeasured(t *testing.T) {
	today := []string{"one", "two", "new"}
	before := &Results{Command: "make bench", Commit: "1", Systems: []System{{Name: "gone"}, {Name: "two"}, {Name: "one", Settings: "old"}},
		Failovers: []Failover{sample("one", "kill", 1), sample("one", "freeze", 2), sample("gone", "kill", 3)},
		Rest:      []Rest{{System: "one"}, {System: "two"}}, Shards: []Shards{{Shards: 7}},
		Growth:   []Growth{{System: "one", Elections: 1}, {System: "two", Elections: 1}, {System: "two", Elections: 100}},
		Mistakes: []Mistakes{{System: "two", Strain: "quota"}, {System: "gone", Strain: "quota"}}}
	// It measured one system alone.
	r := &Results{Command: "go run . -only one", Commit: "2", Systems: []System{{Name: "one"}}, Failovers: []Failover{sample("one", "kill", 4)}, Rest: []Rest{{System: "one", RSS: 8}},
		Growth: []Growth{{System: "one", Elections: 5}}}
	r.Keep(before, today)
	if len(r.Systems) != 2 || r.Systems[0].Name != "one" || r.Systems[0].Settings != "" || r.Systems[1].Name != "two" {
		t.Errorf("systems: %+v", r.Systems)
	}
	if len(r.Failovers) != 2 || *r.Failovers[0].Gap != 4 || r.Failovers[1].Fault != "freeze" {
		t.Errorf("failovers: %+v", r.Failovers)
	}
	if len(r.Rest) != 2 || r.Rest[0].RSS != 8 || r.Rest[1].System != "two" || len(r.Shards) != 1 {
		t.Errorf("rest: %+v, shards: %+v", r.Rest, r.Shards)
	}
	if len(r.Growth) != 3 || r.Growth[0].Elections != 5 || r.Growth[1].System != "two" || len(r.Mistakes) != 1 {
		t.Errorf("growth: %+v, mistakes: %+v", r.Growth, r.Mistakes)
	}
	want := []Kept{{Command: "make bench", Commit: "1", Rows: []Row{{"failovers", "one", "freeze"}, {"costs at rest", "two", ""},
		{"growth", "two", ""}, {"shards", "", ""}, {"mistakes", "two", "quota"}}}}
	if !reflect.DeepEqual(r.Kept, want) {
		t.Errorf("kept: %+v", r.Kept)
	}
	// The next run measures some of what this one has kept, and keeps what this one has measured.
	next := &Results{Failovers: []Failover{sample("one", "freeze", 5)}, Rest: []Rest{{System: "two"}}, Shards: []Shards{{Shards: 8}}}
	next.Keep(r, today)
	want = []Kept{{Command: "make bench", Commit: "1", Rows: []Row{{"growth", "two", ""}, {"mistakes", "two", "quota"}}},
		{Command: "go run . -only one", Commit: "2", Rows: []Row{{"failovers", "one", "kill"}, {"costs at rest", "one", ""}, {"growth", "one", ""}}}}
	if !reflect.DeepEqual(next.Kept, want) {
		t.Errorf("kept of two runs: %+v", next.Kept)
	}
	// A whole run counts no mistakes, so the page stays that of the run before.
	counts := &Results{Command: "go run . -parts mistakes", Commit: "3", Date: time.Unix(3, 0), Mistakes: []Mistakes{{System: "one", Strain: "quota"}}}
	counts.Keep(r, today)
	want = []Kept{{Command: "make bench", Commit: "1", Rows: r.Kept[0].Rows}, {Command: "go run . -parts mistakes", Commit: "3", Date: time.Unix(3, 0), Rows: []Row{{"mistakes", "one", "quota"}}}}
	if counts.Command != r.Command || counts.Commit != "2" || !reflect.DeepEqual(counts.Kept, want) || len(counts.Mistakes) != 2 {
		t.Errorf("%s at %s, mistakes %+v, kept %+v", counts.Command, counts.Commit, counts.Mistakes, counts.Kept)
	}
	all := &Results{Systems: r.Systems}
	all.Keep(&Results{}, today)
	if all.Kept != nil {
		t.Errorf("of nothing it keeps %+v", all.Kept)
	}
}
