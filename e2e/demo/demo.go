//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// config is how the demo is put on.
type config struct {
	Lease time.Duration
	Plain bool // lines of text also on a terminal
	Out   io.Writer

	// Command returns this program with other arguments, for the processes of
	// the candidates and of the guard.
	Command func(args ...string) *exec.Cmd
}

// errInterrupted is returned when the context ended, or Ctrl-C was pressed.
var errInterrupted = errors.New("interrupted; nothing was left behind")

// playDemo puts the demo on. Whatever it returns, and however it ends, no process
// and no directory is left. It returns an error if a scene or a proof failed.
func playDemo(ctx context.Context, cfg config) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var left error // by the clean-up
	err := run(inner, cancel, cfg, &left)
	cause := context.Cause(inner)
	switch {
	case ctx.Err() != nil || errors.Is(cause, errInterrupted):
		err = errInterrupted
	case cause != nil && !errors.Is(err, cause):
		err = errors.Join(cause, err)
	}
	return errors.Join(err, left)
}

func run(ctx context.Context, cancel context.CancelCauseFunc, cfg config, left *error) error {
	fmt.Fprintf(cfg.Out, "demo: one election, three processes, %d scenes\nEach candidate: %s\n", len(scenes), describe(cfg.Lease))
	cluster, err := startCluster(ctx, cfg.Out)
	if err != nil {
		return err
	}
	defer func() { *left = errors.Join(*left, cluster.Stop()) }()
	s, err := newStage(cfg, cluster, cancel)
	if err != nil {
		return err
	}
	defer func() { *left = errors.Join(*left, s.strike()) }()
	for _, d := range []driver{"pgx", "postgres", "pgx"} {
		c, err := s.hire(ctx, d)
		if err != nil {
			return err
		}
		fmt.Fprintf(cfg.Out, "Candidate %s: process %d, driver %s\n", c.Name, c.pid(), d)
	}
	outcomes, err := s.show(ctx, cfg)
	if err != nil {
		return err
	}
	proofs := history.Verify(s.log.Since(0), grace(s.lease))
	report{out: cfg.Out, coloured: !cfg.Plain}.print(outcomes, proofs)
	return history.FailedProofs(proofs)
}

// show plays under a view, which is closed whatever happens.
func (s *stage) show(ctx context.Context, cfg config) ([]outcome, error) {
	if cfg.Plain {
		s.view = newPlain(cfg.Out)
	} else {
		s.view = newLive(cfg, s.log, s.fail)
	}
	defer s.view.close()
	outcomes, err := s.perform(ctx)
	if err != nil {
		return nil, err
	}
	return outcomes, s.dismiss()
}

// slowStart is how long a start may take before it is explained.
const slowStart = 3 * time.Second

func startCluster(ctx context.Context, out io.Writer) (*pgcluster.Cluster, error) {
	type started struct {
		cluster *pgcluster.Cluster
		err     error
	}
	begin := time.Now()
	done := make(chan started, 1)
	go func() {
		c, err := pgcluster.Start(ctx)
		done <- started{c, err}
	}()
	var s started
	select {
	case s = <-done:
	case <-time.After(slowStart):
		fmt.Fprintln(out, "Still starting PostgreSQL: where it is not installed, it is downloaded now, once, into the user's cache …")
		s = <-done
	}
	if s.err != nil {
		return nil, s.err
	}
	version, err := serverVersion(ctx, s.cluster)
	if err != nil {
		return nil, errors.Join(err, s.cluster.Stop())
	}
	fmt.Fprintf(out, "PostgreSQL %s on %s, thrown away in the end; started in %s\n", version, s.cluster.Addr(), seconds(time.Since(begin)))
	return s.cluster, nil
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
