package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/elector"
)

func keyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key NAME",
		Short: "Print the advisory lock key of an election, and the SQL that computes it",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNames(args...); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d\n%s\n", elector.KeyFromName(args[0]), keySQL(args[0]))
			return err
		},
	}
}

// keySQL returns a statement for psql.
func keySQL(name string) string {
	return "SELECT pg_catalog.concat('x', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(" +
		"pg_catalog.concat('pgelector:', " + quote(name) + "), 'UTF8')), 'hex'), 16))::bit(64)::bigint;"
}

// quote returns an SQL string literal that no setting changes.
func quote(text string) string {
	quoted := "'" + strings.NewReplacer("'", "''", `\`, `\\`).Replace(text) + "'"
	if strings.Contains(text, `\`) {
		return " E" + quoted
	}
	return quoted
}
