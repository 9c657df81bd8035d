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
	"time"

	"github.com/pgelector/pgelector/elector"
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

// defaultLease is short, so that the frozen leader's scene is, and long enough
// for a busy machine.
const defaultLease = 3 * time.Second

const (
	retry      = 300 * time.Millisecond
	sampling   = 10 * time.Millisecond // between two questions to IsLeader
	workStep   = 20 * time.Millisecond // between two steps of a leader's work
	election   = "demo"
	heartbeats = 15 // per lease
	drainShare = 5  // the elector's default, said aloud because the proof rests on it
	marginOf   = 10 // the elector's margin is this share of the lease
)

func heartbeat(lease time.Duration) time.Duration { return lease / heartbeats }
func drain(lease time.Duration) time.Duration     { return lease / drainShare }

// validity is for how long after a heartbeat was sent a leader believes.
func validity(lease time.Duration) time.Duration { return grace(lease) - drain(lease) }

// grace is for how long after its last heartbeat a leader may work: the lease
// without its margin.
func grace(lease time.Duration) time.Duration { return lease - lease/marginOf }

// sceneDeadline is generous: a scene that takes so long has failed.
func sceneDeadline(lease time.Duration) time.Duration { return 30*time.Second + 3*lease }

// options are what each candidate is made with.
func options(lease time.Duration) []elector.Option {
	return []elector.Option{
		elector.WithLease(lease),
		elector.WithHeartbeatInterval(heartbeat(lease)),
		elector.WithDrain(drain(lease)),
		elector.WithRetryInterval(retry),
		elector.WithBackoff(retry/2, retry),
	}
}

func describe(lease time.Duration) string {
	return fmt.Sprintf("lease %v, heartbeat %v, retry %v, drain %v", lease, heartbeat(lease), retry, drain(lease))
}
