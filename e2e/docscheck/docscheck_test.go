package docscheck

import (
	"slices"
	"strings"
	"testing"
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
		t.Errorf("got  %q\nwant %q", blocks, want)
	}
}

func TestAFenceThatNothingClosesIsAnError(t *testing.T) {
	_, err := Blocks("text\n```go\nx := 1\n")
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}

func TestMakeTargetsAreReadFromCodeAndNotFromProse(t *testing.T) {
	targets, err := MakeTargets(strings.ReplaceAll(`
To make sure, '''make lint''' and 'make e2e COUNT=10', or 'make'.

'''sh
git pull && make -j2 demo   # make coffee meanwhile
$ make test verify
'''

'''go
make(chan int)
'''
`, "'", "`"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"demo", "test", "verify", "lint", "e2e"}; !slices.Equal(targets, want) {
		t.Errorf("got %q, want %q", targets, want)
	}
}
