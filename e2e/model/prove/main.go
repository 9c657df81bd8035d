// Command prove proves the model of an election with z3, and rejects its weakened variants: make model runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pgelector/pgelector/e2e/model"
)

func main() {
	dir := flag.String("dir", "model", "the folder of the model, in which RESULTS.md is written")
	search := flag.Bool("search", false, "search the traces anew, for minutes")
	flag.Parse()
	if err := run(*dir, *search); err != nil {
		fmt.Fprintln(os.Stderr, "model:", err)
		os.Exit(1)
	}
}

// mostStates is how many states a search visits before it gives up.
const mostStates = 1_000_000

func run(dir string, search bool) error {
	if search {
		for _, part := range model.Parts {
			for _, w := range part.Weakens {
				trace, states := part.New(w.Rule).Search(mostStates)
				if trace == nil {
					return fmt.Errorf("%s without %s: no trace in %d states", part.Name, w.Rule, states)
				}
				fmt.Printf("%s without %s: a trace of %d steps, in %d states\n", part.Name, w.Rule, len(trace)-1, states)
				if err := os.WriteFile(filepath.Join(dir, model.TraceFile(part.Name, w.Rule)), []byte(strings.Join(trace, "\n")+"\n"), 0o644); err != nil {
					return err
				}
			}
		}
	}
	if _, err := exec.LookPath("z3"); err != nil {
		if os.Getenv("CI") == "" {
			fmt.Println("model: SKIPPED: z3 is not installed (Debian and Ubuntu: apt-get install z3; macOS: brew install z3)")
			return nil
		}
		return err
	}
	var report strings.Builder
	ok, err := model.Report(context.Background(), dir, &report)
	if err != nil {
		return err
	}
	proved, rejected := strings.Count(report.String(), "| unsat |"), strings.Count(report.String(), " steps](")
	if err := os.WriteFile(filepath.Join(dir, "RESULTS.md"), []byte(report.String()), 0o644); err != nil {
		return err
	}
	if !ok {
		return errors.Join(errors.New("something was not proved, or not rejected"), errors.New(report.String()))
	}
	fmt.Printf("model: %d obligations proved by z3, %d weakened protocols rejected by z3 and by a trace: %s\n", proved, rejected, filepath.Join(dir, "RESULTS.md"))
	return nil
}
