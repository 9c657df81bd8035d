package main

import (
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Without this test only make mutate would notice a mutant that no longer applies, and
// that takes minutes.
func TestEachListedMutantAppliesToTheCode(t *testing.T) {
	all, err := parseList(listText)
	if err != nil || len(all) < 20 {
		t.Fatalf("%d mutations, %v", len(all), err)
	}
	files := token.NewFileSet()
	config := types.Config{Importer: importer.ForCompiler(files, "gc", exported(t))}
	for _, m := range all {
		if err := m.compiles(files, config); err != nil {
			t.Error(err)
		}
	}
}

// exported returns a function that opens what the compiler knows of a package.
func exported(t *testing.T) importer.Lookup {
	t.Helper()
	list := exec.Command("go", "list", "-C", "../..", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", "./elector", "./shard")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, name, _ := strings.Cut(strings.TrimSpace(line), "=")
		names[path] = name
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(names[path]) }
}

// compiles applies the mutant, and checks the types of its package.
func (m listed) compiles(files *token.FileSet, config types.Config) error {
	dir, name := filepath.Split(filepath.Join("..", "..", m.file))
	p, err := gobuild.ImportDir(dir, 0)
	if err != nil {
		return err
	}
	var parsed []*ast.File
	for _, file := range p.GoFiles {
		source, err := os.ReadFile(dir + file)
		if err != nil {
			return err
		}
		text := string(source)
		if file == name {
			if text, err = m.apply(text); err != nil {
				return err
			}
		}
		one, err := parser.ParseFile(files, file, text, 0)
		if err != nil {
			return fmt.Errorf("mutant %q: %w", m.what, err)
		}
		parsed = append(parsed, one)
	}
	if _, err = config.Check(p.Name, files, parsed, nil); err != nil {
		return fmt.Errorf("mutant %q: %w", m.what, err)
	}
	return nil
}

func TestAMutantThatCannotBeAppliedFails(t *testing.T) {
	m := listed{what: "broken", file: "f.go", out: "a", in: "b"}
	for source, want := range map[string]string{"": "occur 0 times", "aa": "occur 2 times"} {
		if _, err := m.apply(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", source, err)
		}
	}
	if got, err := m.apply("xay"); got != "xby" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, text := range []string{"what\n-a\n+b\n", "what\nfile\n+b\n", "what\nfile\n-a\n+a\n"} {
		if _, err := parseList(text); err == nil {
			t.Errorf("parsed %q", text)
		}
	}
}

const plain = `package p

func f(a, b int, c chan int) (err error) {
	defer g()
	if a < b && len(c) == 0 {
		a = b
	}
	switch {
	case a > g():
		<-c
	}
	return nil
}
`

const withMutants = `package p

import "github.com/pgelector/pgelector/internal/mutants"

func f(a, b int, c chan int) (err error) {
	if mutants.In(1) {
		defer g()
	}
	if mutants.Condition(2, 3, mutants.Condition(4, 5, mutants.Border(8, a < b, a <= b)) && mutants.Condition(6, 7, len(c) == 0)) {
		if mutants.In(9) {
			a = b
		}
	}
	switch {
	case mutants.Condition(10, 11, a > g()):
		if mutants.In(12) {
			<-c
		}
	}
	return nil
}
`

func TestPlant(t *testing.T) {
	planted, mutants, err := plant("p.go", []byte(plain), 1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := format.Source(planted)
	if err != nil {
		t.Fatalf("%v in\n%s", err, planted)
	}
	if string(got) != withMutants {
		t.Errorf("got\n%s", got)
	}
	if m := mutants[7]; len(mutants) != 12 || m.number != 8 || m.line != 5 || m.change != "is <=" || m.code != "a < b" {
		t.Errorf("got %d, %+v", len(mutants), m)
	}
}

func TestEqualMutantsOnTwoLinesHaveDifferentKeys(t *testing.T) {
	_, mutants, err := plant("p.go", []byte("package p\nfunc f() {\n\tf()\n\tf()\n}\n"), 1)
	if err != nil || len(mutants) != 2 || mutants[0].key() == mutants[1].key() {
		t.Errorf("got %+v, %v", mutants, err)
	}
}

func TestMutantsAreCountedByResult(t *testing.T) {
	_, mutants, err := plant("elector/p.go", []byte("package p\nfunc f() {\n\ta()\n\tb()\n\tc()\n\td()\n}\n"), 1)
	if err != nil {
		t.Fatal(err)
	}
	known, err := openResults(filepath.Join(t.TempDir(), "kept"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer known.close()
	known.set(mutants[0], noticedBy("elector", ""))
	known.set(mutants[1], missed)
	known.set(mutants[2], unreached)
	reasons, err := parseReasons("# It only logs\n\n" + mutants[0].key() + "\n" + mutants[1].key() + "\n# Nobody asks\nelector\tgone.go\tis left out\tf()\t0\n")
	if err != nil {
		t.Fatal(err)
	}
	c := count(mutants, known, reasons)
	if c.noticed != 1 || c.untried != 1 || c.explained != 1 || len(c.unexplained) != 1 || c.report() == nil {
		t.Errorf("got %+v", c)
	}
	if got := needless(reasons, mutants, known); !slices.Equal(got, []string{mutants[0].key(), "elector\tgone.go\tis left out\tf()\t0"}) {
		t.Errorf("needless reasons: %q", got)
	}
}

func TestParseReasonsRejectsAMutantWithoutOneReason(t *testing.T) {
	for _, text := range []string{"a\tb\n", "# Once\na\tb\n# Twice\na\tb\n"} {
		if _, err := parseReasons(text); err == nil {
			t.Errorf("took %q", text)
		}
	}
	if _, err := parseReasons(reasonsText); err != nil {
		t.Error(err)
	}
}

func TestTheResultNamesTheFailedTest(t *testing.T) {
	for _, tt := range []struct {
		out  string
		want result
	}{
		{"--- FAIL: TestA (0.1s)\n--- FAIL: TestB (0.1s)\n", "noticed by elector: TestA"},
		{"panic: index out of range", "noticed by elector"},
		{"panic: test timed out after 10s\n\trunning tests:\n\t\tTestA/case (10s)\n", "noticed by elector: TestA, which hangs"},
	} {
		if got := noticedBy("elector", tt.out); got != tt.want || !got.noticed() {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestTheLatestNoticeOfAMutantIsTriedFirst(t *testing.T) {
	s := &suite{reached: map[int][]string{1: {"TestA", "TestB", "TestSlow"}, 2: {"TestA"}}, took: map[string]time.Duration{"TestSlow": time.Minute}}
	var n notices
	for _, name := range []string{"TestA", "TestSlow", "", "TestB", "TestA", "TestB"} {
		n.add(s, name)
	}
	if got := n.of(1); !slices.Equal(got, []notice{{s, "TestB"}, {s, "TestA"}}) {
		t.Errorf("got %v", got)
	}
	if got := n.of(2); !slices.Equal(got, []notice{{s, "TestA"}}) {
		t.Errorf("got %v", got)
	}
}

func TestTheTestThatNoticedAMutantBeforeIsTriedAgain(t *testing.T) {
	s := &suite{name: "elector", reached: map[int][]string{1: {"TestA"}}}
	all := []*suite{{name: "shard", reached: s.reached}, s}
	for _, out := range []string{"--- FAIL: TestA (0.1s)\n", timedOut + "\n\t\tTestA (10s)\n"} {
		if got := noticedBy("elector", out).by(1, all); !slices.Equal(got, []notice{{s, "TestA"}}) {
			t.Errorf("got %v", got)
		}
	}
	for _, v := range []result{"", missed, noticedBy("elector", ""), noticedBy("elector", "--- FAIL: TestB (0.1s)\n")} {
		if got := v.by(1, all); got != nil {
			t.Errorf("%q: got %v", v, got)
		}
	}
}

func TestResultsAreStored(t *testing.T) {
	name := filepath.Join(t.TempDir(), "kept", "mutation.tsv")
	one, two := mutant{file: "f.go", change: "is left out", code: "f()"}, mutant{file: "f.go", change: "is left out", code: "f()", nth: 1}
	known, err := openResults(name, true)
	if err != nil {
		t.Fatal(err)
	}
	known.set(one, missed)
	known.set(one, noticedBy("elector", timedOut))
	known.set(two, unreached)
	known.close()
	for _, again := range []bool{true, false} { // without -again they only say what to try first
		known, err := openResults(name, again)
		if err != nil {
			t.Fatal(err)
		}
		if known.get(one).noticed() != again || known.get(two).noticed() {
			t.Errorf("again %v: %q, %q", again, known.get(one), known.get(two))
		}
		if !known.before[one.key()].noticed() {
			t.Errorf("again %v: %q", again, known.before)
		}
		known.close()
	}
}
