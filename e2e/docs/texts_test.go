package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// never are texts that were printed once and misled a reader, with the reason. No program, document or
// script has them any more. What a program composes when it runs, the tests of that program look for.
var never = []struct{ text, because string }{
	{"--group excludes ", "it lists all flags: name the one that was used"},
	{"whether this database can keep the promise", "an operator does not know a promise: elections run safely"},
	{"promise can be kept", "the same"},
	{"promise cannot be kept", "the same"},
	{"candidate for a program beside this one", "say what the command does, and not what it is"},
	{"exactly one of your", "at most one holds the lock, and another may not have noticed yet that it lost it"},
	{"exactly one of many hosts", "the same"},
	{"exactly one of them runs", "the same"},
	{"last proof of the session", "say who was silent: no heartbeat was answered, or this process stood still"},
	{"the heartbeat was not answered", "the same"},
	{"valid for %v of the lease", "the same"},
	{"… waited=", "after a fast failover it reads as an outage: campaigned="},
	{"; but for %s", "a claim that held names its exception itself"},
	{"token is known to the leader only", "status said so at each call: its help says it once"},
	{"hold nothing in the server, and do not show. The", "the same"},
	{`"%d keys"`, "the fifth key of four shards is the member's seat: say so"},
	{"Bars for six systems", "the picture has marks"},
}

// mayQuote are the pages that tell of the past.
var mayQuote = []string{"e2e/BUGS.md", "CHANGELOG.md"}

func TestNothingPrintsATextThatMisled(t *testing.T) {
	read := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		switch {
		case d.IsDir() && strings.HasPrefix(name, ".") && path != "..":
			return fs.SkipDir
		case d.IsDir(), strings.HasSuffix(name, "_test.go"), slices.Contains(mayQuote, strings.TrimPrefix(filepath.ToSlash(path), "../")):
			return nil
		case !slices.Contains([]string{".go", ".html", ".css", ".js", ".sh", ".sql", ".svg", ".yaml", ".md", ""}, filepath.Ext(name)):
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		text := strings.Join(strings.Fields(string(content)), " ") // also over the end of a line
		for _, n := range never {
			if strings.Contains(text, n.text) {
				t.Errorf("%s has %q: %s", path, n.text, n.because)
			}
		}
		return nil
	})
	if err != nil || read < 300 {
		t.Errorf("read %d files: %v", read, err)
	}
}
