package db_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What several statements must say alike, whatever else they do: the barrier and the token that a fenced write is compared with,
// the epoch, and the lock that tells others the lease.
var alike = []struct {
	what  string
	of    string // a statement that has this
	must  string // says this
	least int    // statements that do
}{
	{"the token", "OPERATOR(pg_catalog.<<) 48", "(pg_catalog.concat('x', pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint OPERATOR(pg_catalog.<<) 48) " +
		"OPERATOR(pg_catalog.|) pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint", 3},
	{"the message that makes the token outlive a crash", "OPERATOR(pg_catalog.<<) 48", "pg_catalog.pg_logical_emit_message(true, 'pgelector', ''::pg_catalog.text)", 3},
	{"the epoch", "'pgelector.epoch=", "FROM pg_catalog.pg_db_role_setting AS s, pg_catalog.unnest(s.setconfig) AS c(line) " +
		"WHERE s.setrole OPERATOR(pg_catalog.=) 0::pg_catalog.oid AND pg_catalog.starts_with(c.line, 'pgelector.epoch=') " +
		"AND s.setdatabase OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())", 3},
	{"the lock that tells the lease", "pg_try_advisory_lock_shared(318473925", "pg_catalog.pg_try_advisory_lock_shared(318473925, s.value::integer)", 2},
	{"the mark of a transaction", "set_config('pgelector.transaction'", "pg_catalog.set_config('pgelector.transaction', extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text, true)", 3},
}

func TestStatementsSayAlikeWhatMustBeEqual(t *testing.T) {
	all := statementsOf(t)
	for _, a := range alike {
		n := 0
		for name, text := range all {
			if !strings.Contains(text, a.of) {
				continue
			}
			if n++; !strings.Contains(text, a.must) {
				t.Errorf("%s: %s says it in another way, want\n%s", name, a.what, a.must)
			}
		}
		if n < a.least {
			t.Errorf("%s: %d statements have it, want at least %d", a.what, n, a.least)
		}
	}
}

// statementsOf are the texts of the statements that sqlc has made, by name, with single spaces.
func statementsOf(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*.sql.go")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	all := map[string]string{}
	spaces := regexp.MustCompile(`\s+`)
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
				if literal, ok := v.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					all[v.Names[0].Name] = spaces.ReplaceAllString(text, " ")
				}
			}
			return true
		})
	}
	return all
}
