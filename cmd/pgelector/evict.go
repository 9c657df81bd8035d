package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/status"
)

func (a *app) evictCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "evict NAME",
		Short: "End the leader's session, so that another candidate is elected",
		Long: "Shows the leader, asks for confirmation, and ends the leader's session. The lock is free at once. The evicted\n" +
			"leader learns this at its next heartbeat. Until then it works on beside the next leader, whose token is larger.\n" +
			"It campaigns again and may be elected again: to keep it away, stop its process.\n\n" +
			"Exit status: 0; 3 if nobody leads or the answer was no; 69 no primary reached; 77 missing privilege.",
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNames(args...); err != nil {
				return err
			}
			pool, target, err := a.connection.open(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.connection.timeout)
			snapshot, err := status.Look(ctx, pool, args[0])
			cancel()
			if err != nil {
				return a.failed(target, err)
			}
			out, election := cmd.OutOrStdout(), snapshot.Elections[0]
			if election.Leader == nil {
				return exit.With(exit.Negative, fmt.Errorf("nobody leads %q: nothing to evict", args[0]))
			}
			if err := snapshot.WriteTable(out); err != nil {
				return err
			}
			if !yes {
				if err := confirm(cmd.InOrStdin(), out, election); err != nil {
					return err
				}
			}
			ctx, cancel = context.WithTimeout(cmd.Context(), a.connection.timeout)
			defer cancel()
			switch err := status.Evict(ctx, pool, election); {
			case errors.Is(err, status.ErrPrivilege):
				return exit.With(exit.Privilege, err)
			case errors.Is(err, status.ErrChanged):
				return exit.With(exit.Negative, err)
			case err != nil:
				return a.failed(target, err)
			}
			_, err = fmt.Fprintf(out, "Evicted: backend %d has ended and released the lock.\n", election.Leader.PID)
			return err
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	a.connection.addTimeout(cmd)
	return cmd
}

// confirm asks the operator. No answer means no.
func confirm(in io.Reader, out io.Writer, e status.Election) error {
	fmt.Fprintf(out, "End the session of %q (backend %d)? [y/N] ", e.Leader.ID, e.Leader.PID)
	answer, err := bufio.NewReader(in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	if err != nil {
		fmt.Fprintln(out)
		return exit.With(exit.Negative, errors.New("no answer, so nothing was done: use --yes to skip the question"))
	}
	return exit.With(exit.Negative, errors.New("nothing was done"))
}
