package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const example = `// Package path waits for the deputy.
package path

type Wide struct{ a, b, c int }

// A fine comment.
func (w *Wide) TransferNow() {}
`

func tree(t *testing.T, list string) error {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "path.go"), []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	listText = list
	return run(root)
}

const list = `
spine path.go
core path.go
words deputy transfer
most code 10
most lines 10
most files 1
most file 10
most fields 3
most methods 1
`

func TestWordsOfFeaturesAreFoundInCommentsAndNames(t *testing.T) {
	err := tree(t, list)
	if err == nil || !strings.Contains(err.Error(), `"deputy"`) || !strings.Contains(err.Error(), `"TransferNow"`) {
		t.Errorf("got %v", err)
	}
	if err := tree(t, list+"exempt path.go deputy\nexempt path.go transfernow\n"); err != nil {
		t.Errorf("with exceptions: %v", err)
	}
}

func TestAnImportOfAPartIsFound(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"internal/lock/lock.go": "package lock\n\nimport (\n\t_ \"example.org/m/internal/lease\"\n\t_ \"example.org/m/internal/handover\"\n)\n",
		"internal/lease/now.go": "package lease\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listText = strings.NewReplacer("path.go", "internal/*/*.go", "files 1", "files 2").Replace(list)
	err := run(root)
	if err == nil || err.Error() != "spine: lock.go imports the part internal/handover" {
		t.Errorf("got %v", err)
	}
}

func TestEachBoundIsChecked(t *testing.T) {
	exceptions := "exempt path.go deputy\nexempt path.go transfernow\n"
	for _, bound := range []string{"most code 10", "most lines 10", "most file 10", "most fields 3"} {
		less := bound[:strings.LastIndex(bound, " ")] + " 1"
		if err := tree(t, strings.Replace(list, bound, less, 1)+exceptions); err == nil || !strings.Contains(err.Error(), "at most 1") {
			t.Errorf("%s: got %v", less, err)
		}
	}
}

func TestAListThatNamesNothingIsAnError(t *testing.T) {
	for _, text := range []string{"", "spine nothing.go\ncore path.go\n" + list[strings.Index(list, "words"):], strings.Replace(list, "most files 1\n", "", 1), list + "spin path.go\n"} {
		if err := tree(t, text); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
}
