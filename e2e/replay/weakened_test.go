//go:build linux

package replay

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var only = flag.String("only", "", "build only the weakened library of that name")

var all = flag.Bool("all", false, "build every weakened library, and run each for longer")

// An edit replaces a text of a file of the library, everywhere in it.
type edit struct{ file, is, becomes string }

// The weakened libraries, and how a replay must reject their runs. Only the first is built unless all are asked for. If you
// change a line that one names, change it here, too.
var weakened = []struct {
	name   string
	faults string // that show it
	length string
	says   string // the rejection
	edits  []edit
}{
	{"no margin and no drain", "cut", "10s", "believes that it leads", []edit{
		{"internal/lease/lease.go", "return l.Length - l.Margin() - l.Drain }", "return l.Length }"},
	}},
	{"the lock is released before the work has returned", "slow, then resign", "10s", "the work has returned before the unlock", []edit{
		{"elector/term.go", "\tt.awaitWork()\n\ta.announce", "\t_ = t.lock.Release()\n\tt.awaitWork()\n\ta.announce"},
	}},
	{"the validity counts from the answer", "slow, then cut", "10s", "believes that it leads", []edit{
		{"internal/lease/proof.go", "func (p *Proof) Renew(sent Instant) {", "func (p *Proof) Renew(sent Instant) { sent = p.Now();"},
	}},
	{"no barrier", "slow, then cut and end", "90s", "no fenced transaction is open", []edit{
		{"db/fence.sql.go", "CASE WHEN pg_catalog.pg_advisory_xact_lock($1::integer, $2::integer) IS NOT NULL", "CASE WHEN $1::integer IS NOT NULL AND $2::integer IS NOT NULL"},
		{"db/election.sql.go", "CASE WHEN pg_catalog.pg_advisory_xact_lock($1::integer, $2::integer) IS NOT NULL", "CASE WHEN $1::integer IS NOT NULL AND $2::integer IS NOT NULL"},
	}},
}

// build builds the program that records, of a library with these edits.
func build(t *testing.T, edits []edit) (program string) {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for _, e := range edits {
		path, err := filepath.Abs(filepath.Join("../..", e.file))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), e.is) {
			t.Fatalf("%s has no text %q any more: change the edit", e.file, e.is)
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
		if err := os.WriteFile(replace[path], []byte(strings.ReplaceAll(string(text), e.is, e.becomes)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "record")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./record").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

func TestARunIsAcceptedByItsReplay(t *testing.T) {
	t.Parallel()
	program := build(t, nil)
	runs := [][]string{{"-for", "20s"}}
	if *all {
		runs = [][]string{{"-for", "2m", "-scope", "transaction"}, {"-for", "2m"}}
	}
	for _, args := range runs {
		out, err := record(program, args...)
		switch exit := (*exec.ExitError)(nil); {
		case errors.As(err, &exit) && exit.ExitCode() == inconclusive:
			t.Skipf("this machine stood still in each run: %s", out)
		case err != nil:
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		t.Logf("%v\n%s", args, out)
	}
}

// inconclusive is the exit status of a run that shows nothing, because the server stood still.
const inconclusive = 3

// record makes a run, and another one while it is inconclusive.
func record(program string, args ...string) (out []byte, err error) {
	for range 3 {
		out, err = exec.Command(program, args...).CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != inconclusive {
			break
		}
	}
	return out, err
}

func TestARunOfAWeakenedLibraryIsRejectedByItsReplay(t *testing.T) {
	t.Parallel()
	for i, w := range weakened {
		if i > 0 && !*all && *only == "" || *only != "" && *only != w.name {
			continue
		}
		out, err := exec.Command(build(t, w.edits), "-for", w.length, "-faults", w.faults).CombinedOutput()
		rejected := string(out)[max(0, strings.LastIndex(string(out), "REJECTED")):]
		if err == nil || !strings.Contains(rejected, w.says) {
			t.Errorf("%s: not rejected for %q: %v\n%s", w.name, w.says, err, out)
		}
		t.Logf("%s: %s", w.name, rejected)
	}
}
