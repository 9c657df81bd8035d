package main

import (
	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/doctor"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
)

func (a *app) doctorCommand() *cobra.Command {
	d := doctor.Examination{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that this database can run elections safely",
		Long: "Connects as a program would, and checks everything that an election needs. It prints the verdict with a recommended\n" +
			"lease, what the server can do for a leader in each scope, and then one line for each check, with the remedy. The trial\n" +
			"election has a random name, and leaves nothing behind. The probes of the timeouts end two connections of doctor's own.\n\n" +
			"Exit status: 0 if elections run safely here; 69 could not connect; 78 if they cannot, as on a standby.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.Elections < 1 {
				return exit.Usagef("--elections %d: want a number from 1", d.Elections)
			}
			if d.LastToken < 0 {
				return exit.Usagef("--last-token %d: want a token, greater than 0", d.LastToken)
			}
			target, err := a.connection.find()
			if err != nil {
				return err
			}
			d.Target, d.Out, d.Log, d.Timeout = target, cmd.OutOrStdout(), cmd.ErrOrStderr(), a.connection.timeout
			if err := d.Run(cmd.Context()); err != nil {
				return a.failed(target, err)
			}
			if !d.Healthy() {
				return exit.Silently(exit.Refused)
			}
			return nil
		},
	}
	a.connection.addTimeout(cmd)
	cmd.Flags().BoolVar(&d.JSON, "json", false, "write JSON")
	cmd.Flags().StringVar(&d.Report, "report", "", "also write to this file what may be shown to others: no connection string, password, host or name")
	cmd.Flags().DurationVar(&d.Lease, "lease", doctor.DefaultLease, "the lease to compare the round trips with")
	cmd.Flags().IntVar(&d.TokenEpoch, "token-epoch", 0, "the token epoch of the candidates (run --token-epoch, WithTokenEpoch)")
	cmd.Flags().Int64Var(&d.Elections, "elections", 1, "show the connections that this many elections need")
	cmd.Flags().Int64Var(&d.LastToken, "last-token", 0, "the largest fencing token that a store has seen: checks that new ones are larger")
	return cmd
}
