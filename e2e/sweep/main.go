// Sweep breaks the library in every way that a few rules make: each condition always
// holds, or never does; each comparison takes equals the other way; each call, defer,
// go, send, receive and assignment is left out. For each it runs the tests that reach
// the place and need no database, and writes down what none of them noticed.
//
//	cd e2e && go run ./sweep [-again] [-file TEXT] [-page docs/sweep.md]
//
// All mutants are built into the tests at once, and one is chosen by an environment
// variable, so that each takes seconds. With -again only those are tried that were not
// noticed the last time, or are new: those first. Ctrl-C writes the page of what is
// known by then. It fails if one is not noticed for which reasons.txt has no reason.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/pgelector/pgelector/e2e/modcopy"
)

var (
	again = flag.Bool("again", false, "leave out what was noticed before, by the results that are kept")
	only  = flag.String("file", "", "only the mutants of files whose path contains this; no page is written")
	kept  = flag.String("results", ".cache/sweep.tsv", "where the results are kept")
	page  = flag.String("page", "docs/sweep.md", "where the page goes")
	few   = flag.Int("processes", runtime.NumCPU()+1, "how many tests run at a time; some only wait")
)

// swept are the packages that are broken.
var swept = []string{"elector", "internal/session", "internal/pace", "internal/fault", "internal/vitals"}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sweep:", err)
		os.Exit(1)
	}
}

func run() error {
	if err := os.Chdir(".."); err != nil { // the root of the repository
		return err
	}
	reasons, err := readReasons(reasonsText)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "sweep-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := modcopy.To(dir); err != nil {
		return err
	}
	mutants, err := plantAll(dir)
	if err != nil {
		return err
	}
	suites, err := build(ctx, dir)
	if err != nil {
		return err
	}
	known, err := openVerdicts(*kept, *again)
	if err != nil {
		return err
	}
	defer known.close()
	tryAll(ctx, mutants, suites, known)
	if *only != "" {
		return nil
	}
	for _, key := range needless(reasons, mutants, known) {
		fmt.Println("no reason is needed for", key)
	}
	c := count(mutants, known, reasons)
	if err := os.WriteFile(*page, []byte(c.write(reasons)), 0o644); err != nil {
		return err
	}
	if len(c.unexplained) > 0 {
		return fmt.Errorf("%d mutants are not noticed, and no reason is given: see %s", len(c.unexplained), *page)
	}
	return nil
}

// plantAll plants the mutants of all that is swept in a copy of the module.
func plantAll(dir string) (all []mutant, err error) {
	for _, p := range swept {
		files, err := filepath.Glob(filepath.Join(dir, p, "*.go"))
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

// tryAll tries the mutants, and keeps each verdict as soon as it is there.
func tryAll(ctx context.Context, mutants []mutant, suites []*suite, known *verdicts) {
	var wg sync.WaitGroup
	jobs := make(chan mutant)
	var wanted []mutant
	for _, m := range mutants {
		if strings.Contains(m.file, *only) && !known.get(m).noticed() {
			wanted = append(wanted, m)
		}
	}
	slices.SortStableFunc(wanted, func(a, b mutant) int { // those that were never tried come first
		return min(1, len(known.get(a))) - min(1, len(known.get(b)))
	})
	for range *few {
		wg.Go(func() {
			for m := range jobs {
				v := try(ctx, m, suites)
				if ctx.Err() != nil {
					continue // Ctrl-C ends the tests as well
				}
				known.set(m, v)
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
