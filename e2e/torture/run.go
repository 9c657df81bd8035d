//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
)

// run is one run, from the servers' start to the verdict. Whatever it returns,
// the history is in the file at path.
func run(ctx context.Context, c config, path string, without error) (err error) {
	fmt.Printf("torture: %v, seed %d\n", c.duration(), c.seed)
	s, err := newStage(ctx, without == nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.strike()) }()
	chosen, err := choose(c.faults, without, s.bouncer != nil, os.Stdout)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	f := newFleet(s, fail)
	defer func() {
		f.Abandon()
		err = errors.Join(err, save(path, f.Log.Since(0)))
	}()
	if err := play(ctx, c, s, f, chosen); err != nil {
		return err
	}
	if err := f.Dismiss(); err != nil {
		return err
	}
	left, err := leftovers(ctx, s)
	if err != nil {
		return err
	}
	r := judge(c.seed, f.Log.Since(0))
	r.Proofs = append(r.Proofs, left)
	return c.conclude(r)
}

// play has the nemesis strike until the time is up.
func play(ctx context.Context, c config, s *stage, f *fleet.Fleet, chosen []fault) error {
	began := time.Now()
	n := newNemesis(f, s, c.seed, chosen)
	n.attend()
	line, err := n.calm(ctx, fmt.Sprintf("%d candidates", len(seats)))
	for round := 0; err == nil; round++ {
		since := time.Since(began).Round(time.Second)
		fmt.Printf("%3d:%02d  %s\n", int(since.Minutes()), int(since.Seconds())%60, line)
		if since >= c.duration() {
			return nil
		}
		line, err = n.round(ctx)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause // why the rest failed
	}
	return err
}

// save writes a history as lines of JSON.
func save(path string, events []history.Event) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(file)
	for _, e := range events {
		if err := lines.Encode(e); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}
