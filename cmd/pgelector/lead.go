//go:build unix

package main

import (
	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/runner"
)

func (a *app) leadCommand() *cobra.Command {
	c := runner.Defaults()
	var e electionFlags
	cmd := &cobra.Command{
		Use:   "lead NAME --http ADDRESS",
		Short: "Take part in an election, run nothing, and tell over HTTP whether this host leads",
		Long: `Takes part in an election until it is stopped, and runs nothing: a program beside it, as in another container of the
same pod, asks it over HTTP whether it leads. /readyz and /leader answer 200 while it leads, and 503 otherwise; /leader
has the fencing token and the deadline.

What asks every few seconds learns of a lost term that much later, while another may lead already. Only the token, sent
with each write to a store that refuses an older one, excludes that. To stop a program in time, use run.

Exit status: 0 after TERM, 128+n after another signal n; 64 bad usage; 69 no primary reached; 78 refused server.`,
		Example: "  pgelector lead billing --http :8080\n  curl --fail http://localhost:8080/leader",
		Args:    oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			if c.Election = args[0]; c.HTTP == "" {
				return exit.Usagef("lead: --http ADDRESS is missing: nobody could ask whether this candidate leads")
			}
			if err := a.candidate(&c, e); err != nil {
				return err
			}
			return runner.Run(c)
		},
	}
	e.add(cmd, &c)
	a.connection.add(cmd)
	a.log.add(cmd)
	groupFlags(cmd)
	return cmd
}
