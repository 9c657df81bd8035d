// Package impostors fills a database with objects that a statement uses by mistake if it
// does not qualify its names. Tests use it to show that all statements are qualified.
package impostors

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed plant.sql
var plant string

var constants = regexp.MustCompile("= `(-- name: [^`]*)`")

// Statements returns the statements of this library as they are sent, and the migrations of the roster
// and of ticks. root is the repository's root.
func Statements(root string) (all []string, err error) {
	for _, pattern := range []string{"db/*.sql.go", "roster/internal/db/*.sql.go", "roster/migrations/*.sql", "ticks/internal/db/*.sql.go", "ticks/migrations/*.sql"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("impostors: no %s in %s: %v", pattern, root, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if filepath.Ext(file) == ".sql" {
				all = append(all, string(text))
			}
			for _, m := range constants.FindAllStringSubmatch(string(text), -1) {
				all = append(all, m[1])
			}
		}
	}
	return all, nil
}

// implied are the operators behind SQL keywords such as IN and BETWEEN.
var implied = []string{"=", "<>", "<", "<=", ">", ">=", "~~", "!~~", "~~*", "!~~*", "||"}

var (
	words     = regexp.MustCompile(`[a-z_][a-z0-9_]*`)
	operators = regexp.MustCompile(`OPERATOR\((?:pg_catalog\.)?([^)]+)\)|([-+*/<>=~!@#%^&|?]+)`)
	types     = regexp.MustCompile(`::(?:pg_catalog\.)?((?:double precision|timestamp with time zone|\w+)(?:\[\])?)`)
	comments  = regexp.MustCompile(`--.*`)
	texts     = regexp.MustCompile(`'[^']*'`)
)

// Plant creates, in the schema public of the connection's database, functions, operators,
// types and relations that raise an error when used: a copy of everything in pg_catalog and,
// for each name in the statements, one variant for every pair of their types. The connection's
// role must own the database. Plant returns the number of functions and operators.
func Plant(ctx context.Context, conn *pgx.Conn, statements []string) (n int, err error) {
	code := texts.ReplaceAllString(comments.ReplaceAllString(strings.Join(statements, "\n"), ""), "''")
	symbols := slices.Clone(implied)
	for _, m := range operators.FindAllStringSubmatch(code, -1) {
		symbols = append(symbols, m[1]+m[2])
	}
	symbols = slices.DeleteFunc(symbols, func(s string) bool { return s == "=>" || s == "" })
	named := []string{"integer", "numeric", "text", "boolean"} // types of constants
	for _, m := range types.FindAllStringSubmatch(code, -1) {
		named = append(named, m[1])
	}
	script := strings.NewReplacer("$names", array(words.FindAllString(code, -1)), "$operators", array(symbols), "$types", array(named)).Replace(plant)
	if _, err := conn.Exec(ctx, script); err != nil {
		return 0, fmt.Errorf("impostors: %w", err)
	}
	const count = `SELECT (SELECT count(*) FROM pg_catalog.pg_proc WHERE pronamespace = n.oid) + (SELECT count(*) FROM pg_catalog.pg_operator WHERE oprnamespace = n.oid)
		FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'public'`
	return n, conn.QueryRow(ctx, count).Scan(&n)
}

// array returns the literal of a text array.
func array(all []string) string {
	slices.Sort(all)
	all = slices.Compact(all)
	quoted := make([]string, len(all))
	for i, one := range all {
		quoted[i] = "'" + strings.ReplaceAll(one, "'", "''") + "'"
	}
	return "ARRAY[" + strings.Join(quoted, ", ") + "]::text[]"
}
