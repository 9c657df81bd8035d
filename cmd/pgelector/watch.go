package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/status"
	"github.com/pgelector/pgelector/elector"
)

func (a *app) watchCommand() *cobra.Command {
	var asJSON bool
	w := status.Watch{Interval: time.Second}
	cmd := &cobra.Command{
		Use:   "watch NAME",
		Short: "Print each change of leader and deputy, one line each",
		Long: "Prints who leads and who is the deputy, and then one line for each change, until it is interrupted. When the database is away it\n" +
			"prints one line, and goes on when the database is back. It misses a leader that came and went between two looks.",
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNames(args...); err != nil {
				return err
			}
			if w.Interval <= 0 {
				return exit.Usagef("--interval %v: want more than 0", w.Interval)
			}
			target, err := a.connection.find()
			if err != nil {
				return err
			}
			pool, err := target.Open(connect.Inspection)
			if err != nil {
				return exit.Classify(err)
			}
			out := cmd.OutOrStdout()
			w.Election, w.Timeout = args[0], a.connection.timeout
			w.Report = func(c status.Change) error {
				c.Error = target.Scrub(c.Error)
				if asJSON {
					return c.WriteJSON(out)
				}
				return c.WriteLine(out)
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.failed(target, w.Run(ctx, pool, permanent))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	cmd.Flags().DurationVar(&w.Interval, "interval", w.Interval, "the time between two looks")
	a.connection.addTimeout(cmd)
	return cmd
}

// permanent reports whether asking again is useless.
func permanent(err error) bool {
	return connect.Refused(err) || errors.Is(err, elector.ErrServerReadOnly)
}

// failed gives the error of a question its exit code.
func (a *app) failed(target *connect.Target, err error) error {
	var own *exit.Error
	if known := exit.Classify(err); err == nil || errors.As(known, &own) {
		return known
	}
	return exit.Classify(target.Failed(err))
}

// untilSignal returns a context that ends with a signal. Its cause has the exit code that
// shells use, and no message.
func untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case sig := <-signals:
			cancel(exit.BySignal(sig, exit.ErrSilent))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
