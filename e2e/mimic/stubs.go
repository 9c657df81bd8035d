//go:build unix

package mimic

import (
	"context"
	"database/sql"
	"fmt"
)

// Stub replaces advisory lock functions of a database by ones that grant everything, and lock nothing: those
// of sessions, and with transactions those of transactions, too. The server needs allow_system_table_mods.
func Stub(ctx context.Context, pool *sql.DB, transactions bool) error {
	scopes := []string{""}
	if transactions {
		scopes = append(scopes, "xact_")
	}
	for _, scope := range scopes {
		for _, shared := range []string{"", "_shared"} {
			for _, arguments := range []string{"bigint", "integer, integer"} {
				for name, result := range map[string]string{"pg_try_advisory_" + scope + "lock": "boolean", "pg_advisory_" + scope + "lock": "void", "pg_advisory_unlock": "boolean"} {
					if scope != "" && name == "pg_advisory_unlock" {
						continue
					}
					body := map[string]string{"boolean": "SELECT true", "void": "SELECT"}[result]
					// The server finds built-in code by the function's number, so it must be another function.
					_, err := pool.ExecContext(ctx, fmt.Sprintf(`ALTER FUNCTION pg_catalog.%[1]s(%[2]s) RENAME TO real_%[1]s;
						CREATE FUNCTION pg_catalog.%[1]s(%[2]s) RETURNS %[3]s LANGUAGE sql VOLATILE AS '%[4]s'`, name+shared, arguments, result, body))
					if err != nil {
						return fmt.Errorf("%s(%s): %w", name+shared, arguments, err)
					}
				}
			}
		}
	}
	return nil
}
