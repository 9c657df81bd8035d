//go:build linux

// Command recording records a terminal session of pgelector run, watch and
// status, on a throw-away server, and draws it as a picture: the output is what
// the programs wrote, at the times at which they wrote it.
//
//	go run ./recording ../docs/pictures/session.svg
package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/producer"
)

func main() { producer.Main("recording", "FILE.svg", record) }

func record(ctx context.Context, file string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cluster, err := pgcluster.Start(ctx)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	bin, err := os.MkdirTemp("", "pgelector-recording-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(bin, "pgelector"), "./cmd/pgelector")
	build.Dir = ".." // another module
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	worker := "#!/bin/sh\necho \"billing-worker: working, with token $PGELECTOR_TOKEN\"\nexec sleep 600\n"
	if err := os.WriteFile(filepath.Join(bin, "billing-worker"), []byte(worker), 0o755); err != nil {
		return err
	}
	s := &studio{ctx: ctx, began: time.Now(), env: append(os.Environ(), "DATABASE_URL="+cluster.DSN(),
		"PATH="+bin+":"+os.Getenv("PATH"), "TERM=xterm", "NO_COLOR=1", "HISTFILE=")}
	defer s.close()
	if err := s.play(); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(s.svg()), 0o644)
}

// play is the session.
func (s *studio) play() error {
	run := func(host string) string {
		return "pgelector run --election billing --candidate " + host + " --log-level off -- billing-worker"
	}
	one, two := s.pane("web-1"), s.pane("web-2")
	watch, operator := s.pane("operator"), s.pane("operator")
	for _, step := range []func() error{
		watch.types("pgelector watch billing", "nobody leads"),
		one.types(run("web-1"), "with token"),
		watch.sees("web-1 leads"),
		two.types(run("web-2"), ""),
		operator.types("pgelector status billing 2>/dev/null", "leads"),
		s.rest,
		operator.kills(one, "   # pgelector on web-1: its worker dies with it"),
		one.sees("Killed"),
		two.sees("with token"),
		watch.sees("web-2 leads"),
		operator.types("pgelector status billing 2>/dev/null", "web-2"),
		s.rest,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
