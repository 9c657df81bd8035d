//go:build unix

// Demo is what `make demo` runs: an election of three processes on a throw-away
// PostgreSQL server, with one fault per scene. At the end it proves, from what the
// processes recorded, that the election kept its guarantees.
//
// # Processes
//
//	demo ──stdin: commands──▶ candidate A (pgx)      ──▶ PostgreSQL (e2e/pgcluster)
//	  │  ◀─stdout: events────  candidate B (lib/pq)
//	  │                        candidate C (pgx)
//
// Each candidate is a separate process: the same program with other arguments. It exits
// when its standard input closes, which also happens when the demo is killed. A frozen
// candidate cannot exit: it is listed in a sandbox (package sandbox), whose reaper then ends it.
//
// # Reading order
//
// main.go, then scene.go. candidate.go is the demo's side of a candidate, role.go the candidate's
// process. view.go keeps the state of all candidates, built from their events; it and live.go show it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

// interruptedCode is the exit code that shells report after Ctrl-C.
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

// command runs the demo, or a candidate.
func command(args []string) error {
	if len(args) == 2 && args[0] == candidateCommand {
		return runCandidate(args[1], os.Stdin, os.Stdout)
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	plain := flags.Bool("plain", false, "print plain lines, as when the output is no terminal or NO_COLOR or CI is set")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	// A signal during the clean-up does not interrupt it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return playDemo(ctx, *plain || !wantsLive())
}

const (
	election = "demo"
	// lease is short, to keep the scene of the frozen leader short, and long enough for a busy machine.
	lease     = 3 * time.Second
	heartbeat = lease / 15
	retry     = 300 * time.Millisecond
	drain     = lease / 5        // the elector's default; the proof relies on it
	grace     = lease - lease/10 // how long a leader may work after its last heartbeat: the lease without the elector's margin
	validity  = grace - drain    // how long a leader believes after it sent a heartbeat

	sampling      = 10 * time.Millisecond // between two calls of IsLeader
	workStep      = 20 * time.Millisecond // between two steps of a leader's work
	sceneDeadline = 40 * time.Second      // a scene that takes longer has failed
)

// options are those of every candidate.
var options = []elector.Option{elector.WithLease(lease), elector.WithHeartbeatInterval(heartbeat), elector.WithDrain(drain),
	elector.WithRetryInterval(retry), elector.WithBackoff(retry/2, retry)}

// errInterrupted is returned after the context ended or Ctrl-C was pressed.
var errInterrupted = errors.New("interrupted; nothing was left behind")

// playDemo runs the demo. However it ends, no process and no directory is left behind. It
// returns an error if a scene or a proof failed.
func playDemo(ctx context.Context, plain bool) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var left error // error of the clean-up
	err := run(inner, cancel, plain, &left)
	cause := context.Cause(inner)
	switch {
	case ctx.Err() != nil || errors.Is(cause, errInterrupted):
		err = errInterrupted
	case cause != nil && !errors.Is(err, cause):
		err = errors.Join(cause, err)
	}
	return errors.Join(err, left)
}

func run(ctx context.Context, cancel context.CancelCauseFunc, plain bool, left *error) error {
	fmt.Printf("demo: one election, three processes, %d scenes\nEach candidate: lease %v, heartbeat %v, retry %v, drain %v\n",
		len(scenes), lease, heartbeat, retry, drain)
	cluster, err := startCluster(ctx)
	if err != nil {
		return err
	}
	defer func() { *left = errors.Join(*left, cluster.Stop()) }()
	s, err := newStage(cluster, cancel)
	if err != nil {
		return err
	}
	defer func() { *left = errors.Join(*left, s.stop()) }()
	for _, d := range []driver{"pgx", "postgres", "pgx"} {
		c, err := s.addCandidate(ctx, d)
		if err != nil {
			return err
		}
		fmt.Printf("Candidate %s: process %d, driver %s\n", c.Name, c.pid(), d)
	}
	outcomes, err := s.show(ctx, plain)
	if err != nil {
		return err
	}
	proofs := history.Verify(s.log.Since(0), grace)
	report{out: os.Stdout, coloured: !plain}.print(outcomes, proofs)
	return history.FailedProofs(proofs)
}

// show plays all scenes with a view, and closes the view.
func (s *stage) show(ctx context.Context, plain bool) ([]outcome, error) {
	if plain {
		s.view = newPlain(os.Stdout)
	} else {
		s.view = newLive(s.log, s.fail)
	}
	defer s.view.close()
	outcomes, err := s.perform(ctx)
	if err != nil {
		return nil, err
	}
	return outcomes, s.dismiss()
}

// slowStart is how long a start may take before the demo explains it.
const slowStart = 3 * time.Second

func startCluster(ctx context.Context) (*pgcluster.Cluster, error) {
	begin := time.Now()
	slow := time.AfterFunc(slowStart, func() {
		fmt.Println(paragraph("Still starting PostgreSQL. If it is not installed, it is downloaded now, once, into the user's cache …", 0))
	})
	c, err := pgcluster.Start(ctx)
	slow.Stop()
	if err != nil {
		return nil, err
	}
	version, err := serverVersion(ctx, c)
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	fmt.Printf("PostgreSQL %s on %s, removed at the end; started in %s\n", version, c.Addr(), seconds(time.Since(begin)))
	return c, nil
}

func serverVersion(ctx context.Context, c *pgcluster.Cluster) (version string, err error) {
	conn, err := c.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	err = conn.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&version)
	return version, err
}
