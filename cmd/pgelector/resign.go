package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/elector"
)

func (a *app) resignCommand() *cobra.Command {
	var to string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "resign NAME",
		Short: "Ask the leader to hand over cleanly",
		Long: "Asks the leader to resign. It hears at its next heartbeat, finishes its work, and releases the lock. Then prints who\n" +
			"leads next, which may be the same candidate again. With --to the leader transfers the lock to that candidate.\n" +
			"The request ends with this command. Any role that may connect can ask.\n\n" +
			"Exit status: 0; 3 if nobody leads, the leader did not answer, or another candidate leads next than --to says;\n" +
			"69 no primary reached.",
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNames(args...); err != nil {
				return err
			}
			if wait <= 0 {
				return exit.Usagef("--wait %v: want more than 0", wait)
			}
			pool, target, err := a.connection.openFor(cmd, connect.Election)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), wait, fmt.Errorf("it has not let go within %v", wait))
			defer cancel()
			next, err := request(func() (elector.Leader, error) {
				if to == "" {
					return elector.RequestResign(ctx, pool, args[0])
				}
				return elector.RequestTransfer(ctx, pool, args[0], to)
			})
			switch {
			case errors.Is(err, elector.ErrConfig):
				return exit.With(exit.Usage, err)
			case errors.Is(err, elector.ErrNoLeader), errors.Is(err, elector.ErrUnanswered), errors.Is(err, elector.ErrNoSuccessor):
				return exit.With(exit.Negative, err)
			case err != nil:
				return a.failed(target, err)
			}
			text := "The leader has resigned, and nobody leads yet."
			if next.PID != 0 {
				text = fmt.Sprintf("%s leads (backend %d).", next.CandidateID, next.PID)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the candidate that is to lead next")
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long to wait for the leader")
	a.connection.addTimeout(cmd)
	return cmd
}

// request adds to an error who leads instead.
func request(call func() (elector.Leader, error)) (elector.Leader, error) {
	next, err := call()
	if errors.Is(err, elector.ErrNoSuccessor) && next.PID != 0 {
		err = fmt.Errorf("%w; %s leads now", err, next.CandidateID)
	}
	return next, err
}
