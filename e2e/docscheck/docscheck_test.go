package docscheck

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestBlocksAreFoundWithTheirLanguageAndLine(t *testing.T) {
	blocks, err := Blocks(strings.ReplaceAll(`Text.

'''go
x := 1
'''
1. a list
   '''sh title=x
   make test
   '''

''''md
'''go
not Go: the fence around it is longer
'''
''''
`, "'", "`"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{"go", 4, "x := 1\n"},
		{"sh", 8, "   make test\n"},
		{"md", 12, "```go\nnot Go: the fence around it is longer\n```\n"},
	}
	if !slices.Equal(blocks, want) {
		t.Errorf("got  %+v\nwant %+v", blocks, want)
	}
}

func TestBlocksFailsOnAnUnclosedFence(t *testing.T) {
	_, err := Blocks("text\n```go\nx := 1\n")
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}

// root is the path of the repository's root.
const root = "../.."

// documents returns the text of each document to check.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[filepath.ToSlash(strings.TrimPrefix(file, filepath.Clean(root)+string(filepath.Separator)))] = string(text)
		}
	}
	return texts
}

func TestEveryPartOfAFileInTheDocsStandsInACompiledFile(t *testing.T) {
	compiled := compiledFiles(t)
	for name, text := range documents(t) {
		blocks, err := Blocks(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, block := range blocks {
			if block.Language == "go" && !packageClause.MatchString(block.Code) && !occursIn(compiled, block.Code) {
				t.Errorf("%s:%d: this block has no package clause, so it must occur, word for word, in a "+
					"_test.go file or below examples/, where it is compiled; it does not:\n%s", name, block.Line, block.Code)
			}
		}
	}
}

// The snippet that a reader of the package's documentation meets first.
func TestThePackageCommentBeginsWithAnExample(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "elector", "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, usage, found := strings.Cut(string(text), "\n// # ")
	usage, _, _ = strings.Cut(usage, "\n// # ")
	if !found || !strings.HasPrefix(usage, "How to use it\n") {
		t.Errorf("the first heading of elector/doc.go is not How to use it")
	}
	var snippet []string
	for line := range strings.Lines(usage) {
		if code, isCode := strings.CutPrefix(line, "//\t"); isCode {
			snippet = append(snippet, code)
		}
	}
	if code := strings.Join(snippet, ""); len(snippet) > 12 || !occursIn(compiledFiles(t), code) {
		t.Errorf("this is no part of an example, or has more than 12 lines:\n%s", code)
	}
}

// Who opens it wants the API. The repository's documents have the rest.
func TestThePackageCommentIsShortAndNamesNoFunctionOfTheInside(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "elector", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	inside := map[string]bool{}
	var comment string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(name) == "doc.go" {
			comment = string(text)
		}
		for _, f := range insideFunc.FindAllSubmatch(text, -1) {
			inside[string(f[1])] = true
		}
	}
	const limit = 1200
	words := slices.DeleteFunc(strings.Fields(comment), func(word string) bool { return !strings.ContainsFunc(word, unicode.IsLetter) }) // a diagram has strokes
	if n := len(words); n > limit {
		t.Errorf("elector/doc.go has %d words, want at most %d", n, limit)
	}
	for _, word := range regexp.MustCompile(`\b[a-z]+[A-Z]\w*\b`).FindAllString(comment, -1) {
		if inside[word] {
			t.Errorf("elector/doc.go names %s, which users do not see", word)
		}
	}
}

var insideFunc = regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?([a-z]\w*)`)

var packageClause = regexp.MustCompile(`(?m)^[ \t]*package [a-z]`)

// compiledFiles returns the repository's tests and examples, by name and with normalised
// white space, without the tests of this package.
func compiledFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if base := entry.Name(); name != "." && (base[0] == '.' || base == "testdata" || name == filepath.Join("e2e", "docscheck")) {
				return fs.SkipDir
			}
			return nil
		}
		isExample := strings.HasPrefix(filepath.ToSlash(name), "examples/")
		if !strings.HasSuffix(name, "_test.go") && (!isExample || filepath.Ext(name) != ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		files[name] = normalised(string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func occursIn(files map[string]string, code string) bool {
	code = normalised(code)
	for _, text := range files {
		if code != "" && strings.Contains(text, code) {
			return true
		}
	}
	return false
}

// normalised replaces each run of white space by one space.
func normalised(code string) string { return strings.Join(strings.Fields(code), " ") }

func TestEveryMakeTargetOfTheDocsExists(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(string(makefile), -1) {
		exists[match[1]] = true
	}
	named := 0
	for name, text := range documents(t) {
		for _, command := range makeCommand.FindAllStringSubmatch(text, -1) {
			for word := range strings.FieldsSeq(command[1]) {
				named++
				if !exists[word] {
					t.Errorf("%s: the Makefile has no target %q", name, word)
				}
			}
		}
	}
	if named < 20 {
		t.Errorf("the documents name only %d targets", named)
	}
}

// makeCommand is one at the beginning of a code span, or of a line of a block. In prose, make is no command.
var makeCommand = regexp.MustCompile("(?m)(?:`|^)make((?: [a-z][a-z0-9-]*)+)\\b")

func TestAFragmentMustOccurInACompiledFile(t *testing.T) {
	files := map[string]string{"a_test.go": normalised("func f() {\n\tx := 1\n\t_ = x\n}")}
	if !occursIn(files, "x := 1\n_ = x\n") {
		t.Error("a fragment that stands in a file was refused")
	}
	for _, code := range []string{"x := 2\n", "", "\n"} {
		if occursIn(files, code) {
			t.Errorf("%q was accepted", code)
		}
	}
}
