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
	before := &Results{Command: "make bench", Failovers: []Failover{sample("one", "kill", 1), sample("one", "freeze", 2), sample("gone", "kill", 3)},
		Rest: []Rest{{System: "one"}, {System: "two"}}, Shards: []Shards{{Shards: 7}}}
	r := &Results{Systems: []System{{Name: "one"}, {Name: "two"}}, Failovers: []Failover{sample("one", "kill", 4)}, Rest: []Rest{{System: "one", RSS: 8}}}
	r.Keep(before)
	if len(r.Failovers) != 2 || *r.Failovers[0].Gap != 4 || r.Failovers[1].Fault != "freeze" {
		t.Errorf("failovers: %+v", r.Failovers)
	}
	if len(r.Rest) != 2 || r.Rest[0].RSS != 8 || r.Rest[1].System != "two" || len(r.Shards) != 1 {
		t.Errorf("rest: %+v, shards: %+v", r.Rest, r.Shards)
	}
	want := []Kept{{"failovers, costs at rest, shards", "make bench", time.Time{}}}
	if !reflect.DeepEqual(r.Kept, want) {
		t.Errorf("kept: %+v", r.Kept)
	}
	all := &Results{Systems: r.Systems}
	all.Keep(&Results{})
	if all.Kept != nil {
		t.Errorf("of nothing it keeps %+v", all.Kept)
	}
}
