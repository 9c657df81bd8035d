package ticks

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/internal/tables"
	"github.com/pgelector/pgelector/ticks/internal/db"
)

// Every statement and migration names its tables in the placeholder's schema, and uses the
// placeholder for nothing else.
func TestNoStatementNamesATableOutsideTheChosenSchema(t *testing.T) {
	statements := map[string]string{
		"Note": db.Note, "Look": db.Look, "Advance": db.Advance, "Add": db.Add, "Unfinished": db.Unfinished, "Begin": db.Begin, "Finish": db.Finish,
		"Fail": db.Fail, "Installed": db.Installed, "Version": db.Version, "RecordVersion": db.RecordVersion, "LockMigrations": db.LockMigrations,
	}
	if methods := reflect.TypeFor[*db.Queries]().NumMethod() - 1; methods != len(statements) { // WithTx is none
		t.Errorf("there are %d statements, and this test knows %d", methods, len(statements))
	}
	entries, err := files.ReadDir("migrations")
	if err != nil || len(entries) != len(migrations) {
		t.Errorf("there are %d migrations, and %d are known (%v): are they numbered from 1?", len(entries), len(migrations), err)
	}
	for i, migration := range migrations {
		statements[entries[i].Name()] = migration
	}
	table := regexp.MustCompile(`\S*\bticks_(schedules|unfinished|migrations)\b`)
	for name, statement := range statements {
		left := statement
		for _, found := range table.FindAllString(statement, -1) {
			if !strings.HasPrefix(found, tables.Placeholder) && !strings.HasPrefix(found, "'") {
				t.Errorf("%s names %s", name, found)
			}
			left = strings.Replace(left, found, "", 1)
		}
		if strings.Contains(left, tables.Placeholder) {
			t.Errorf("%s names the schema without a table:\n%s", name, left)
		}
	}
}
