package tables

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMigrationsAreLoadedInOrderUpToTheFirstGap(t *testing.T) {
	files := fstest.MapFS{}
	for _, n := range []int{1, 2, 3, 10, 12} {
		files[fmt.Sprintf("migrations/%d.sql", n)] = &fstest.MapFile{Data: fmt.Append(nil, n)}
	}
	if got := strings.Join(Load(files), " "); got != "1 2 3" {
		t.Errorf("loaded were %s", got)
	}
}

func TestAQuotedNameIsOneIdentifier(t *testing.T) {
	for name, want := range map[string]string{`a`: `"a"`, `a"b`: `"a""b"`, `"`: `""""`, `a.b`: `"a.b"`} {
		if got := Quote(name); got != want {
			t.Errorf("%s is quoted as %s, want %s", name, got, want)
		}
	}
}

// Between the outer quotes, quotes come in pairs.
func FuzzQuote(f *testing.F) {
	f.Add(`"; DROP TABLE x; --`)
	f.Fuzz(func(t *testing.T, name string) {
		quoted := Quote(name)
		inner := quoted[1 : len(quoted)-1]
		if strings.Contains(strings.ReplaceAll(inner, `""`, ""), `"`) || strings.ReplaceAll(inner, `""`, `"`) != name {
			t.Errorf("%q is quoted as %s", name, quoted)
		}
	})
}

func TestTheLockOfMigrationsIsThatOfTheProtocol(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	high, low := Lock("public")
	if row := fmt.Sprintf("\n%-22s %d, %d\n", "roster", high, low); !strings.Contains(string(page), row) {
		t.Errorf("the page lacks%s", row)
	}
}
