//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// interruptedCode is what shells report for a program that Ctrl-C ended.
const interruptedCode = 128 + int(syscall.SIGINT)

func main() {
	err := command(os.Args[1:])
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "demo:", err)
	if errors.Is(err, errInterrupted) {
		os.Exit(interruptedCode)
	}
	os.Exit(1)
}

// command runs the demo, or one of its other processes.
func command(args []string) error {
	switch {
	case len(args) == 2 && args[0] == candidateCommand:
		return runCandidate(args[1], os.Stdin, os.Stdout)
	case len(args) == 1 && args[0] == guardCommand:
		return runGuard(os.Stdin)
	}
	cfg := config{Out: os.Stdout}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.BoolVar(&cfg.Plain, "plain", false, "print plain lines, as when the output is no terminal or NO_COLOR or CI is set")
	flags.DurationVar(&cfg.Lease, "lease", defaultLease, "the lease of the election")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to run it again for the candidates: %w", err)
	}
	cfg.Command = func(args ...string) *exec.Cmd { return exec.Command(program, args...) }
	cfg.Plain = cfg.Plain || !wantsLive()
	// A signal that comes during the clean-up does not break it off.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return playDemo(ctx, cfg)
}
