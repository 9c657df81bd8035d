package docscheck

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ran says which test runs a block of SQL of the documents, by its first line, on a real server.
// The test calls the code that takes the block from the page.
var ran = []struct{ page, first, file, test, calls string }{
	{"docs/migrations.md", "-- +goose NO TRANSACTION", "examples/migrations/migrations_test.go", "TestAfterKill9TheNextGoesOnWhenTheStatementHasEndedAndNeverTwo", "documented("},
	{"docs/observing.md", "GRANT USAGE ON SCHEMA pgelector TO orders_service;", "e2e/rosterrows_test.go", "TestTheDocumentedPrivilegesSuffice", "documentedGrants("},
	{"docs/operating.md", "SET search_path = pg_catalog;", "e2e/command/deputy_test.go", "TestTheDeputyShowsEverywhere", "pasted("},
	{"docs/protocol.md", "SELECT pg_catalog.concat('x', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(", "e2e/protocol/protocol_test.go", "TestTheVectorsAreThoseOfTheCodeAndOfTheServer", "```sql"},
	{"docs/threats.md", "-- connect", "e2e/threats_test.go", "TestARoleThatMayNotConnectCannotTakeTheLock", `defend(t, "connect")`},
	{"docs/threats.md", "-- locks", "e2e/threats_test.go", "TestARoleThatMayNotCallTheLockFunctionsCannotTakeTheLock", `defend(t, "locks")`},
	{"docs/threats.md", "-- tables", "e2e/crowds_test.go", "TestStrangersOfAnotherDatabaseCanFillTheLockTableUnlessTheyMayNotLockThere", `defend(t, "tables")`},
	{"docs/threats.md", "-- create", "e2e/threats_test.go", "TestAStrangerCreatesNothingInTheSchemaPublicUnlessItMay", `defend(t, "create")`},
	{"docs/threats.md", "-- connections", "e2e/crowds_test.go", "TestStrangersCanTakeEveryConnectionUnlessTheyAreLimited", `defend(t, "connections")`},
	{"docs/threats.md", "-- sight", "e2e/crowds_test.go", "TestAStrangerSeesWhoLeadsUnlessItMayNotLook", `defend(t, "sight")`},
}

// Blocks of shell and of Go are run by package firsthour. A block that cannot be run would need
// a list of its own, with the reason.
func TestEveryBlockOfSQLInTheDocsIsRunByATest(t *testing.T) {
	found := map[int]bool{}
	for page, text := range documents(t) {
		blocks, err := Blocks(text)
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
		for _, block := range blocks {
			if block.Language != "sql" {
				continue
			}
			first, _, _ := strings.Cut(block.Code, "\n")
			i := -1
			for n, one := range ran {
				if one.page == page && one.first == first && !found[n] {
					i = n
				}
			}
			if i < 0 {
				t.Errorf("%s:%d: no test runs this block: run it, and add the test to ran\n%s", page, block.Line, block.Code)
				continue
			}
			found[i] = true
		}
	}
	for i, one := range ran {
		source, err := os.ReadFile(filepath.Join(root, one.file))
		if err != nil {
			t.Fatal(err)
		}
		_, body, exists := strings.Cut(string(source), "\nfunc "+one.test+"(")
		body, _, _ = strings.Cut(body, "\n}\n")
		if !exists || !strings.Contains(body, one.calls) {
			t.Errorf("%s has no %s that calls %s", one.file, one.test, one.calls)
		}
		if !found[i] {
			t.Errorf("%s has no block of SQL that begins with %q", one.page, one.first)
		}
	}
}

// No other word makes a block of SQL that nobody looks at.
func TestTheDocsHaveNoBlocksOfAnUnknownLanguage(t *testing.T) {
	known := []string{"go", "sh", "sql", "text", "mermaid", "crontab", "ini", "yaml", "json", ""}
	for page, text := range documents(t) {
		blocks, err := Blocks(text)
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
		for _, block := range blocks {
			if !slices.Contains(known, block.Language) {
				t.Errorf("%s:%d: a block of %q", page, block.Line, block.Language)
			}
		}
	}
}
