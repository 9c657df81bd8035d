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
	var group string
	var shards int
	cmd := &cobra.Command{
		Use:   "status [NAME…]",
		Short: "Show who leads, and who is the deputy",
		Long: "Shows who leads each election, since when and from where, who is the deputy, and who else waits in the server, in\n" +
			"order: for the named elections, or for all elections of the database.\n\n" +
			"The server knows keys, not names: status shows the names that you give. If the leader's session does not tell since\n" +
			"when it leads, it shows the start of the session, which is not later. Only the leader knows its token. The other\n" +
			"followers hold nothing in the server, and do not show. Nor does a deputy while nobody leads.\n\n" +
			"With --group, shows in one row how the shards of a group are spread over its members: --shards N numbered ones, or\n" +
			"those that you name.\n\n" +
			"Exit status: 0; 3 if nobody leads one of the named elections or shards; 64 bad usage; 69 no primary reached.",
		RunE: func(cmd *cobra.Command, names []string) error {
			switch {
			case shards < 0 || shards > 0 && len(names) > 0:
				return exit.Usagef("status: want --shards N of at least 0, or the names of shards")
			case group != "" && shards == 0 && len(names) == 0:
				return exit.Usagef("status: --group needs --shards N, or the names of shards")
			case group == "" && shards > 0:
				return exit.Usagef("status: --shards needs --group")
			}
			if err := checkNames(names...); err != nil {
				return err
			}
			pool, target, err := a.connection.open(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.connection.timeout)
			defer cancel()
			if group != "" {
				s, err := spreadOf(ctx, pool, group, shards, names)
				if err != nil {
					return a.failed(target, err)
				}
				if err := s.write(cmd.OutOrStdout(), asJSON); err != nil {
					return err
				}
				return s.result()
			}
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
	cmd.Flags().StringVar(&group, "group", "", "show a group of shards in one row")
	cmd.Flags().IntVar(&shards, "shards", 0, "with --group: the number of its shards")
	a.connection.addTimeout(cmd)
	return cmd
}
