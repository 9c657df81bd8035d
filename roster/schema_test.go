package roster

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/roster/internal/db"
)

// Every statement and migration names its tables in the placeholder's schema, and uses the
// placeholder for nothing else.
func TestNoStatementNamesATableOutsideTheChosenSchema(t *testing.T) {
	statements := map[string]string{
		"Publish": db.Publish, "Leave": db.Leave, "RecordTerms": db.RecordTerms, "Candidates": db.Candidates, "Terms": db.Terms,
		"RemoveCandidates": db.RemoveCandidates, "RemoveTerms": db.RemoveTerms, "Version": db.Version, "RecordVersion": db.RecordVersion,
		"Installed": db.Installed, "LockMigrations": db.LockMigrations,
	}
	if methods := reflect.TypeFor[db.Querier]().NumMethod(); methods != len(statements) {
		t.Errorf("there are %d statements, and this test knows %d", methods, len(statements))
	}
	entries, err := files.ReadDir("migrations")
	if err != nil || len(entries) != len(migrations) {
		t.Errorf("there are %d migrations, and %d are known (%v): are they numbered from 1?", len(entries), len(migrations), err)
	}
	for i, migration := range migrations {
		statements[entries[i].Name()] = migration
	}
	table := regexp.MustCompile(`\S*\broster_(candidates|terms|migrations)\b`)
	for name, statement := range statements {
		left := statement
		for _, found := range table.FindAllString(statement, -1) {
			if !strings.HasPrefix(found, placeholder) && !strings.HasPrefix(found, "'") {
				t.Errorf("%s names %s", name, found)
			}
			left = strings.Replace(left, found, "", 1)
		}
		if strings.Contains(left, placeholder) {
			t.Errorf("%s names the schema without a table:\n%s", name, left)
		}
	}
}

func TestAQuotedNameIsOneIdentifier(t *testing.T) {
	for name, want := range map[string]string{`a`: `"a"`, `a"b`: `"a""b"`, `"`: `""""`, `a.b`: `"a.b"`} {
		if got := quote(name); got != want {
			t.Errorf("%s is quoted as %s, want %s", name, got, want)
		}
	}
}

// Between the outer quotes, quotes come in pairs.
func FuzzQuote(f *testing.F) {
	f.Add(`"; DROP TABLE x; --`)
	f.Fuzz(func(t *testing.T, name string) {
		quoted := quote(name)
		inner := quoted[1 : len(quoted)-1]
		if strings.Contains(strings.ReplaceAll(inner, `""`, ""), `"`) || strings.ReplaceAll(inner, `""`, `"`) != name {
			t.Errorf("%q is quoted as %s", name, quoted)
		}
	})
}
