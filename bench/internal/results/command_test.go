package results

import "testing"

// A reader can repeat the command: it has no directory of the machine that measured.
func TestTheCommandHasOnlyFlagsThatChangeTheFigures(t *testing.T) {
	for want, all := range map[string][][]string{
		"make bench":                    {{}, {"-keep"}, {"-out", "/tmp/results"}, {"--out=/tmp/results"}},
		"make bench-quick":              {{"-quick"}, {"-out=/tmp/results", "-quick"}},
		"go run . -only river -parts x": {{"-only", "river", "-out", "/tmp/results", "-parts", "x"}},
		"go run . -only 'raw lock, pq'": {{"-only", "raw lock, pq"}},
	} {
		for _, args := range all {
			if got := Command(args); got != want {
				t.Errorf("%q: got %q, want %q", args, got, want)
			}
		}
	}
}
