package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
func plantAll(dir string) ([]mutant, error) {
	all, files, err := mutantsOf(dir)
	if err != nil {
		return nil, err
	}
	for file, text := range files {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return nil, err
		}
	}
	return all, installSwitch(dir, len(all))
}

// mutantsOf returns the mutants of the rules in a repository, and its files with them.
func mutantsOf(dir string) (all []mutant, planted map[string][]byte, err error) {
	planted = map[string][]byte{}
	for _, pattern := range filesToBreak() {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				return nil, nil, err
			}
			text, mutants, err := plant(strings.TrimPrefix(file, dir+"/"), source, len(all)+1)
			if err != nil {
				return nil, nil, err
			}
			planted[file] = text
			all = append(all, mutants...)
		}
	}
	return all, planted, nil
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
	for range runtime.NumCPU() + 1 {
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
