//go:build unix

// Package firsthour does what a newcomer does in the first hour, word for word: its tests take
// code and shell commands from the documents, put them into a new module outside the
// repository, and run them on a real PostgreSQL.
//
// Two things differ from what a reader does. Modules come from the cache first, and so in the
// versions that the repository is tested with. And pgelector itself is the one of this
// repository.
package firsthour_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/docscheck"
	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }

var check, eventually = must.Check, must.Eventually

// root is the repository's root.
var root, _ = filepath.Abs("../..")

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	check(t, err)
	return string(text)
}

// pages returns the names of the documents for readers.
func pages(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	check(t, err)
	names := []string{"README.md"}
	for _, path := range docs {
		names = append(names, filepath.Join("docs", filepath.Base(path)))
	}
	return names
}

// blocks returns the blocks of a page in a language.
func blocks(t *testing.T, page, language string) (some []docscheck.Block) {
	t.Helper()
	all, err := docscheck.Blocks(read(t, page))
	check(t, err)
	for _, b := range all {
		if b.Language == language {
			some = append(some, b)
		}
	}
	return some
}

// block returns the first block of a page that contains the text.
func block(t *testing.T, page, language, contains string) string {
	t.Helper()
	for _, b := range blocks(t, page, language) {
		if strings.Contains(b.Code, contains) {
			return b.Code
		}
	}
	t.Fatalf("%s has no block of %s that contains %q", page, language, contains)
	return ""
}

// module is a directory with a new module.
type module struct{ dir string }

func newModule(t *testing.T) module {
	t.Helper()
	m := module{t.TempDir()}
	m.run(t, "go", "mod", "init", "example.com/orders")
	for _, below := range []string{"", "/hooks/otel", "/hooks/prometheus", "/migrations/golangmigrate", "/migrations/goose"} {
		m.run(t, "go", "mod", "edit", "-replace", "github.com/pgelector/pgelector"+below+"="+root+below)
	}
	return m
}

// environment is that of a reader's shell.
var environment = func() (env []string) {
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "DATABASE_URL=") {
			env = append(env, entry)
		}
	}
	settings, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		panic(err)
	}
	cache, proxy, _ := strings.Cut(strings.TrimSpace(string(settings)), "\n")
	return append(env, "GOPROXY=file://"+filepath.Join(cache, "cache", "download")+","+proxy, "GOSUMDB=off", "GOWORK=off", "LC_ALL=C")
}()

// run runs a program in the module and returns what it says.
func (m module) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = m.dir, environment
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, said)
	}
	return string(said)
}

func (m module) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(m.dir, name)
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path, []byte(content), 0o755))
}

// Blocks without a package clause are parts of tests and examples: see package docscheck.
func TestEveryGoFileOfTheDocsCompilesInANewModule(t *testing.T) {
	m := newModule(t)
	files := 0
	for _, page := range pages(t) {
		for _, b := range blocks(t, page, "go") {
			if !regexp.MustCompile(`(?m)^package `).MatchString(b.Code) {
				continue
			}
			files++
			name := "block.go"
			if strings.Contains(b.Code, `"testing"`) {
				name = "block_test.go"
			}
			m.write(t, fmt.Sprintf("block%d/%s", files, name), fmt.Sprintf("//line %s:%d\n%s", filepath.Join(root, page), b.Line, b.Code))
		}
	}
	if files < 4 {
		t.Errorf("the pages have only %d whole files", files)
	}
	m.run(t, "go", "mod", "tidy")
	m.run(t, "go", "vet", "./...")
}

// The page of examples says that each file is one example to copy, and the folder migrations.
func TestEachExampleCompilesAlone(t *testing.T) {
	m := newModule(t)
	files, err := filepath.Glob(filepath.Join(root, "examples", "*.go"))
	check(t, err)
	more, err := filepath.Glob(filepath.Join(root, "examples", "*", "*.go"))
	check(t, err)
	for _, path := range append(files, more...) {
		if name := strings.TrimSuffix(filepath.Base(path), ".go"); !strings.HasSuffix(name, "_test") {
			relative, err := filepath.Rel(root, path)
			check(t, err)
			switch filepath.Base(filepath.Dir(path)) {
			case "migrations": // one example of several files
				m.write(t, relative, read(t, relative))
				continue
			case "service": // it says what to copy with it
				for _, file := range []string{"errgroup.go", "outbox.go", "server.go", "ticks.go", "migrations/migrations.go", "service/migrations/1_service.sql", "service/main.go"} {
					m.write(t, filepath.Join("whole", file), strings.ReplaceAll(read(t, filepath.Join("examples", file)), "github.com/pgelector/pgelector/examples", "example.com/orders/whole"))
				}
				continue
			}
			m.write(t, filepath.Join(filepath.Dir(relative), name, name+".go"), read(t, relative))
		}
	}
	m.run(t, "go", "mod", "tidy")
	m.run(t, "go", "vet", "./...")
}

// The tests are those of the files that the page says to copy.
func TestTheTestsOfThePageOfTestingRun(t *testing.T) {
	m := newModule(t)
	page := read(t, "docs/testing.md")
	for _, link := range regexp.MustCompile(`\]\(\.\./(\w+/\w+_test\.go)\)`).FindAllStringSubmatch(page, -1) {
		m.write(t, link[1], read(t, link[1]))
	}
	m.run(t, "go", "mod", "tidy")
	said := m.run(t, "go", "test", "-count=1", "-v", "./...")
	for _, name := range append(regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(page, -1), []string{"", "TestTheOutbox"}) {
		if !strings.Contains(said, "--- PASS: "+name[1]) {
			t.Errorf("no test %s passed:\n%s", name[1], said)
		}
	}
}
