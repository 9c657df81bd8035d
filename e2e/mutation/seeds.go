package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// failedSeed is in the output of a simulation that fails.
var failedSeed = regexp.MustCompile(`(?m)^\s+simulation_test\.go:\d+: seed (\d+):`)

// tryFirstSeeds says for each mutant of the list which seed of the simulation is the first to
// notice it: how many seeds are worth running?
func tryFirstSeeds(ctx context.Context, dir string, list []listed, seeds int) error {
	var first []int
	tried := 0
	for _, m := range list {
		if !strings.Contains(m.what+m.file, *only) || strings.HasPrefix(m.file, "shard/") { // the simulation has no shards
			continue
		}
		n, err := m.firstSeed(ctx, dir, seeds)
		tried++
		switch {
		case errors.Is(err, errHangs):
			fmt.Printf("%-6s %s\n", "hangs", m.what)
		case err != nil:
			return err
		case n == 0:
			fmt.Printf("%-6s %s\n", "none", m.what)
		default:
			fmt.Printf("%-6d %s\n", n, m.what)
			first = append(first, n)
		}
	}
	if len(first) == 0 {
		return fmt.Errorf("%d seeds notice none of %d mutants", seeds, tried)
	}
	slices.Sort(first)
	at := func(percent int) int { return first[(len(first)*percent+99)/100-1] }
	fmt.Printf("%d seeds notice %d of %d mutants: half of these by seed %d, 90 %% by seed %d, the last by seed %d\n",
		seeds, len(first), tried, at(50), at(90), at(100))
	return nil
}

// errHangs is returned when a seed does not end, which is noticed, too.
var errHangs = errors.New("the simulation hangs")

// firstSeed returns the first seed that notices the mutant, or 0.
func (m listed) firstSeed(ctx context.Context, dir string, seeds int) (int, error) {
	undo, err := m.plant(dir)
	if err != nil {
		return 0, err
	}
	defer undo()
	s := newSuite(dir, suite{name: filepath.Join("e2e", "simulation"), tests: "^TestSimulation$", args: []string{fmt.Sprint("-seeds=", seeds), "-simplify=false"}})
	if err := s.compile(ctx); err != nil {
		return 0, fmt.Errorf("%s: %w", m.what, err)
	}
	out, err := s.run(ctx, s.tests, time.Minute+time.Duration(seeds)*100*time.Millisecond, "MUTANT=")
	found := failedSeed.FindStringSubmatch(out)
	switch {
	case err == nil:
		return 0, nil
	case strings.Contains(out, timedOut):
		return 0, errHangs
	case found == nil:
		return 0, fmt.Errorf("%s: the simulation failed, and names no seed: %w\n%s", m.what, err, out[:min(len(out), 2000)])
	}
	return strconv.Atoi(found[1])
}
