package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/status"
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [NAME…]",
		Short: "Tell who leads, and who waits",
		Long: "Tells who leads each election, since when, from where, and who waits in the server, in which order: of the\n" +
			"named elections, or of all of the database.\n\n" +
			"Without a table of its own the server knows keys, not names, so names show only for elections that are named.\n" +
			"Since when is the start of the leader's session, which is not later than its term. The token is known to the\n" +
			"leader only. A candidate that polls holds nothing in the server, so it does not show.\n\n" +
			"Exit status: 0; 3 if nobody leads one of the named elections; 64 bad usage; 69 no primary reached.",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := checkNames(names...); err != nil {
				return err
			}
			pool, target, err := a.connection.open(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.connection.timeout)
			defer cancel()
			snapshot, err := status.Look(ctx, pool, names...)
			if err != nil {
				return a.failed(target, err)
			}
			if asJSON {
				err = snapshot.WriteJSON(cmd.OutOrStdout())
			} else if err = snapshot.WriteTable(cmd.OutOrStdout()); err == nil {
				for _, note := range snapshot.Notes() {
					fmt.Fprintln(cmd.ErrOrStderr(), note)
				}
			}
			if err != nil {
				return err
			}
			for _, e := range snapshot.Elections {
				if len(names) > 0 && e.Leader == nil {
					return exit.Silently(exit.Negative)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	a.connection.addTimeout(cmd)
	return cmd
}
