package figures

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestDurationsHaveTwoDigits(t *testing.T) {
	for ms, want := range map[float64]string{0.756: "0.76 ms", 1.644: "1.6 ms", 9.96: "10 ms", 50.8: "51 ms", 99.6: "0.10 s", 883.9: "0.88 s",
		997: "1.0 s", 9249.6: "9.2 s", 9250.4: "9.3 s", 9960: "10 s", 49320: "49 s", math.Inf(1): "never"} {
		if got := Duration(ms); got != want {
			t.Errorf("%v ms: got %q, want %q", ms, got, want)
		}
	}
}

func TestTheMedianIsOfAllSamples(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	samples := `{"Failovers": [{"System": "a", "Fault": "b", "Gap": 3}, {"System": "a", "Fault": "b", "Gap": null}, {"System": "a", "Fault": "b", "Gap": 1}]}`
	if err := os.WriteFile(file, []byte(samples), 0o600); err != nil {
		t.Fatal(err)
	}
	gaps, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := gaps.Median("a", "b"); got != 3 || err != nil {
		t.Errorf("got %v, %v, want 3", got, err)
	}
	if _, err := gaps.Median("a", "c"); err == nil {
		t.Error("a median of nothing is no error")
	}
}
