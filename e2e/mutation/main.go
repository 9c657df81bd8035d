// Mutation breaks the library on purpose, in each way of mutations.txt, in a copy of
// the module, and sees whether the tests notice. It writes the table of what each was
// noticed by, and fails if one was not.
//
//	cd e2e && go run ./mutation [-only TEXT] [-table docs/mutations.md] [-seeds 300]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/modcopy"
)

var (
	only  = flag.String("only", "", "only the mutations whose description contains this; no table is written")
	table = flag.String("table", "docs/mutations.md", "where the table goes")
	seeds = flag.Int("seeds", 300, "how many seeds the simulation plays")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

func run() error {
	if err := os.Chdir(".."); err != nil { // the root of the repository
		return err
	}
	all, err := parse(text)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := modcopy.To(dir); err != nil {
		return err
	}
	var results []result
	missed := 0
	for i, m := range all {
		if !strings.Contains(m.what, *only) {
			continue
		}
		r, err := try(dir, m)
		if err != nil {
			return err
		}
		fmt.Printf("%2d of %d: %s: %s\n", i+1, len(all), m.what, r)
		if !r.caught() {
			missed++
		}
		results = append(results, r)
	}
	if *only == "" {
		if err := os.WriteFile(*table, []byte(write(results)), 0o644); err != nil {
			return err
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d mutations were not noticed by any test", missed, len(results))
	}
	return nil
}

// try applies a mutation, runs the tests, and takes it back.
func try(dir string, m mutation) (result, error) {
	r := result{mutation: m}
	path := filepath.Join(dir, m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	changed, err := m.apply(string(source))
	if err != nil {
		return r, err
	}
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		return r, err
	}
	defer os.WriteFile(path, source, 0o644)
	r.tests, err = failing(dir, "-failfast", "-skip=TestTheStandInAnswersAsPostgreSQLDoes",
		"./internal/session", "./internal/pace", "./elector", "./sqlmock_test", "./electortest")
	if err == nil {
		r.simulation, err = failing(filepath.Join(dir, "e2e"), "-run=^TestSimulation$", "./simulation", fmt.Sprint("-seeds=", *seeds), "-simplify=false")
	}
	return r, err
}

// patience is how long the tests may take: one that a mutation makes hang is noticed, too.
const patience = time.Minute

func goTest(dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience) // which the tests end by themselves before
	defer cancel()
	command := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-vet=off", "-timeout=" + patience.String()}, args...)...)
	command.Dir = dir
	out, err := command.CombinedOutput()
	return string(out), err
}
