package elector_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The package comment lists the options by purpose: a reader who misses one there does not look for it.
func TestThePackageCommentListsEveryOption(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var options, listed []string
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "With") {
				options = append(options, f.Name.Name)
			}
		}
		if entry.Name() == "doc.go" {
			list, _, found := strings.Cut(file.Doc.Text(), "\n[New] takes all of them")
			_, list, begun := strings.Cut(list, "The options, by purpose:\n")
			if !found || !begun {
				t.Fatal("doc.go has no list of options")
			}
			for _, m := range regexp.MustCompile(`\[(With\w+)\]`).FindAllStringSubmatch(list, -1) {
				listed = append(listed, m[1])
			}
		}
	}
	slices.Sort(options)
	slices.Sort(listed)
	if len(options) < 20 || !slices.Equal(options, listed) {
		t.Errorf("the package has\n%q, and its comment lists\n%q", options, listed)
	}
}
