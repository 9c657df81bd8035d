package exit

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/pgelector/pgelector/elector"
)

// If an option of the command is refused, the error names its flag. The options below are
// never refused: the command sets them to valid values.
func TestEveryOptionOfTheCommandHasItsFlag(t *testing.T) {
	good := []string{"WithHooks", "WithTakeover", "WithScope"}
	var files []string
	for _, where := range []string{"../runner/*.go", "../doctor/*.go", "../../*.go"} {
		found, err := filepath.Glob(where)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	used := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\belector\.(With[A-Z]\w*)`).FindAllStringSubmatch(string(text), -1) {
			used[name[1]] = true
		}
	}
	for name := range used {
		if flags[name] == "" && !slices.Contains(good, name) {
			t.Errorf("the command sets %s, which has no flag here", name)
		}
	}
	for name := range flags {
		if !used[name] {
			t.Errorf("%s has a flag here, but the command does not set it", name)
		}
	}
}

func TestOptionsAreNamedByTheirFlags(t *testing.T) {
	err := ByFlags(&elector.OptionError{Options: []elector.OptionValue{{Name: "WithHeartbeatInterval", Value: "2"}, {Name: "WithLease", Value: "3"}, {Name: "WithDrain", Value: "4"}}, Want: "want less"},
		map[string]string{"WithDrain": "as --grace says"})
	if want := "--heartbeat 2 with --lease 3 and --drain 4 (as --grace says): want less"; CodeOf(err) != Usage || err.Error() != want {
		t.Errorf("got %d, %q, want %q", CodeOf(err), err, want)
	}
	if other := errors.New("other"); ByFlags(other, nil) != other {
		t.Error("another error was changed")
	}
}
