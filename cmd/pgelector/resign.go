package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/status"
	"github.com/pgelector/pgelector/elector"
	"github.com/spf13/cobra"
)

func (a *app) resignCommand() *cobra.Command {
	var to string
	var orAnyone bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "resign NAME",
		Short: "Ask the leader to hand over cleanly",
		Long: "Asks the leader to resign. It hears at its next heartbeat, finishes its work, and releases the lock. Then prints who\n" +
			"leads next, which may be the same candidate again. With --to the leader transfers the lock to that candidate. If\n" +
			"that does not come within one lease, the leader goes on; with --or-anyone it is then asked to resign. The request\n" +
			"ends with this command; once the leader's work was told to stop, there is no way back. Any role that may connect\n" +
			"can ask.\n\n" +
			"Exit status: 0; 3 if nobody leads, the leader did not answer, or another candidate leads than --to says (with\n" +
			"--or-anyone: and the leader did not let go);\n" +
			"69 no primary reached.",
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNames(args...); err != nil {
				return err
			}
			if orAnyone && to == "" {
				return exit.Usagef("--or-anyone needs --to")
			}
			if wait <= 0 {
				return exit.Usagef("--wait %v: want more than 0", wait)
			}
			pool, target, err := a.connection.openFor(cmd, connect.Election)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), wait, fmt.Errorf("no answer within %v", wait))
			defer cancel()
			next, err := request(ctx, pool, args[0], to, orAnyone)
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
	_ = cmd.RegisterFlagCompletionFunc("to", a.completeCandidates)
	cmd.Flags().BoolVar(&orAnyone, "or-anyone", false, "with --to: let anybody lead if that candidate does not come")
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long to wait for the leader")
	a.connection.addTimeout(cmd)
	return cmd
}

// request asks the leader. It adds to an error who leads instead.
func request(ctx context.Context, pool *sql.DB, election, to string, orAnyone bool) (elector.Leader, error) {
	if to == "" {
		return elector.RequestResign(ctx, pool, election)
	}
	before, err := status.Look(ctx, pool, election)
	if err != nil {
		return elector.Leader{}, err
	}
	next, err := elector.RequestTransfer(ctx, pool, election, to)
	leader := before.Elections[0].Leader
	switch {
	case !errors.Is(err, elector.ErrNoSuccessor) || next.PID == 0:
		return next, err
	case !orAnyone:
		return next, fmt.Errorf("%w; %s leads now", err, next.CandidateID)
	case leader != nil && leader.PID == next.PID && leader.ID == next.CandidateID: // the leader stays
		return elector.RequestResign(ctx, pool, election)
	}
	return next, nil
}

func (a *app) evictCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "evict NAME",
		Short: "End the leader's session, so that another candidate is elected",
		Long: "Shows the leader, asks for confirmation, and ends the leader's session. The lock is free at once. The evicted\n" +
			"leader is told within milliseconds (over lib/pq it looks every 250 ms), and ends its work. If there is a deputy, that\n" +
			"leads next: the evicted candidate waits for one retry interval. Then it campaigns again: to keep it away, stop its\n" +
			"process. Prints who leads next.\n\n" +
			"Exit status: 0; 3 if nobody leads, the answer was no, or the session does not end; 69 no primary reached;\n" +
			"77 missing privilege.",
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
				text := fmt.Sprintf("nobody leads %q: nothing to evict", args[0])
				return exit.With(exit.Negative, errors.New(strings.Join(append([]string{text}, election.Blockers...), "; ")))
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
			case errors.Is(err, status.ErrChanged), errors.Is(err, status.ErrStays):
				return exit.With(exit.Negative, err)
			case err != nil:
				return a.failed(target, err)
			}
			text := "Nobody leads yet."
			if next := status.Next(ctx, pool, election); next != nil {
				text = fmt.Sprintf("%s leads (backend %d).", status.Shown(next.ID), next.PID)
			}
			_, err = fmt.Fprintf(out, "Evicted: backend %d has ended and released the lock. %s\n", election.Leader.PID, text)
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
