//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/internal/demo"
	"github.com/pgelector/pgelector/internal/exit"
)

// interruptedCode is what shells report for a program that Ctrl-C ended.
const interruptedCode = 128 + int(syscall.SIGINT)

// demoCommands are the demo and the parts of its other processes.
func demoCommands() []*cobra.Command {
	candidate := &cobra.Command{
		Use:    demo.CandidateCommand + " PART",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return demo.Candidate(args[0], os.Stdin, os.Stdout) },
	}
	guard := &cobra.Command{
		Use:    demo.GuardCommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return demo.Guard(os.Stdin) },
	}
	return []*cobra.Command{demoCommand(), candidate, guard}
}

func demoCommand() *cobra.Command {
	cfg := demo.Config{Lease: demo.DefaultLease, Out: os.Stdout}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch an election go through seven scenes on a throw-away PostgreSQL",
		Long: "Starts a throw-away PostgreSQL server and three processes that stand in one election, on different\n" +
			"drivers, and hurts them in every way that an election must survive. It ends with a proof, from what the\n" +
			"processes recorded, that no two led at once, and that a write which came after its term was refused where\n" +
			"it was fenced. Nothing is left behind.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program, to run it again for the candidates: %w", err)
			}
			cfg.Command = func(args ...string) *exec.Cmd { return exec.Command(program, args...) }
			cfg.Plain = cfg.Plain || !demo.WantsLive()
			// Signals that come during the clean-up do not break it off.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			err = demo.Run(ctx, cfg)
			if errors.Is(err, demo.ErrInterrupted) {
				return exit.With(interruptedCode, err)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&cfg.Plain, "plain", false, "plain lines, as when the output is no terminal or NO_COLOR or CI is set")
	cmd.Flags().DurationVar(&cfg.Lease, "lease", cfg.Lease, "the lease of the election")
	return cmd
}
