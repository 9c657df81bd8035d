// Mutation breaks the library on purpose and checks that a test notices. It has two
// kinds of mutants:
//
//   - those of list.txt, each written by hand: a line says what is broken;
//   - those that rules make (plant.go): each condition always holds, or never does;
//     each comparison treats equals the other way; each call, defer, go, send, receive
//     and assignment is left out.
//
// For each mutant it runs the tests that need no server and reach it, package by package, until one
// fails. It works in a copy of the repository. All mutants of the rules are compiled in
// together, and an environment variable selects one, so each takes seconds.
//
//	cd e2e && go run ./mutation [-rules] [-again] [-only TEXT]
//	cd e2e && go run ./mutation -path [-draw 200 -seed 1] [-again] [-only TEXT]
//	cd e2e && go run ./mutation -first 2000 [-only TEXT]
//
// With -path it breaks by rules only the kernel and what it stands on, and runs only the tests of
// elector and internal: do unit tests notice it, without those of a whole candidate?
//
// With -first it says for each mutant of the list which of so many seeds of the simulation is the
// first to notice it.
//
// It fails if no test notices a mutant of the list, or a mutant of the rules that has no
// reason in reasons.txt.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

var (
	onPath = flag.Bool("path", false, "try mutants of the rules in the kernel and what it stands on, with the tests of elector and internal only")
	drawn  = flag.Int("draw", 200, "with -path: number of mutants that are drawn (0: all)")
	seed   = flag.Uint64("seed", 1, "with -path: seed of the draw")
	rules  = flag.Bool("rules", false, "try the mutants of the rules instead, which takes more than an hour")
	first  = flag.Int("first", 0, "say which of so many seeds of the simulation is the first to notice each mutant of the list")
	again  = flag.Bool("again", false, "with -rules: skip mutants that the last run noticed")
	only   = flag.String("only", "", "try only mutants whose file or description contains this text")
	kept   = flag.String("results", "", "file that keeps the results of the rules (default .cache/mutation.tsv, with -path .cache/mutation-path.tsv)")
)

// broken are the packages that the rules change.
var broken = []string{"elector", "internal/election", "internal/idle", "internal/lease", "internal/gate", "internal/pin", "internal/backoff", "internal/pgerr",
	"internal/seat", "internal/transaction", "internal/pooled", "internal/live", "internal/queue", "internal/listen", "internal/preflight", "internal/promotion", "internal/syncrep", "internal/lockdelay", "internal/tenure", "internal/inbox", "internal/preference", "internal/deputy", "internal/handover", "internal/shared", "internal/fenced", "internal/wakeup"}

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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	list, err := parseList(listText)
	if err != nil {
		return err
	}
	reasons, err := parseReasons(reasonsText)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if !*rules && !*onPath && *first == 0 {
		return breakByHand(ctx, dir, list)
	}
	if err := copyRepository(dir); err != nil {
		return err
	}
	if *rules || *onPath {
		c, err := tryRules(ctx, dir, reasons)
		if err != nil {
			return err
		}
		return c.report()
	}
	return tryFirstSeeds(ctx, dir, list, *first)
}

func breakByHand(ctx context.Context, dir string, list []listed) error {
	tried, err := tryList(ctx, dir, list)
	if err != nil {
		return err
	}
	missed := missedOf(tried)
	fmt.Printf("tests notice %d of %d mutants written by hand\n", len(tried)-missed, len(tried))
	if missed > 0 {
		return fmt.Errorf("no test notices %d mutants", missed)
	}
	return nil
}

// copyRepository copies the tracked and the untracked, not ignored files to dir.
func copyRepository(dir string) error {
	names, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.Lines(string(names)) {
		name = strings.TrimSpace(name)
		content, err := os.ReadFile(name)
		if err != nil {
			continue // removed from the working tree
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
