package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// planted are the mutants of the rules and their results.
type planted struct {
	mutants []mutant
	known   *results
}

// tryRules plants the mutants of the rules in the copy and tries each.
func tryRules(ctx context.Context, dir string, reasons []reason) (tally, error) {
	mutants, err := plantAll(dir)
	if err != nil {
		return tally{}, err
	}
	suites, err := build(ctx, dir)
	if err != nil {
		return tally{}, err
	}
	if *onPath {
		mutants = draw(mutants, *drawn, *seed)
	}
	known, err := openResults(cmp.Or(*kept, map[bool]string{false: ".cache/mutation.tsv", true: ".cache/mutation-path.tsv"}[*onPath]), *again)
	if err != nil {
		return tally{}, err
	}
	defer known.close()
	planted{mutants, known}.tryAll(ctx, suites)
	if *onPath {
		return count(mutants, known, reasons), nil
	}
	for _, key := range needless(reasons, mutants, known) {
		fmt.Println("needless reason for", key)
	}
	return count(mutants, known, reasons), nil
}

// plantAll plants the mutants in all files that the rules change.
func plantAll(dir string) (all []mutant, err error) {
	patterns, err := filesToBreak(dir)
	if err != nil {
		return nil, err
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			mutants, err := plantIn(dir, strings.TrimPrefix(file, dir+"/"), len(all)+1)
			if err != nil {
				return nil, err
			}
			all = append(all, mutants...)
		}
	}
	return all, installSwitch(dir, len(all))
}

func plantIn(dir, file string, number int) ([]mutant, error) {
	path := filepath.Join(dir, file)
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	planted, mutants, err := plant(file, source, number)
	if err != nil {
		return nil, err
	}
	return mutants, os.WriteFile(path, planted, 0o644)
}

// tryAll tries the mutants and stores each result at once.
func (p planted) tryAll(ctx context.Context, suites []*suite) {
	var wanted []mutant
	for _, m := range p.mutants {
		if strings.Contains(m.file, *only) && !p.known.get(m).noticed() {
			wanted = append(wanted, m)
		}
	}
	slices.SortStableFunc(wanted, func(a, b mutant) int { // new mutants first
		return min(1, len(p.known.get(a))) - min(1, len(p.known.get(b)))
	})
	var wg sync.WaitGroup
	var lately notices
	jobs := make(chan mutant)
	for range *few {
		wg.Go(func() {
			for m := range jobs {
				v := try(ctx, m.number, suites, &lately, p.known.before[m.key()])
				if ctx.Err() != nil {
					continue // Ctrl-C also interrupts the tests
				}
				p.known.set(m, v)
				if !v.noticed() {
					fmt.Printf("\r%s:%d: %s: %s: %s\n", m.file, m.line, m.change, m.code, v)
				}
			}
		})
	}
	for i, m := range wanted {
		if ctx.Err() != nil {
			break
		}
		fmt.Printf("\r%d of %d ", i+1, len(wanted))
		jobs <- m
	}
	close(jobs)
	wg.Wait()
	fmt.Println()
}
