//go:build linux

package fleet

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pgelector/pgelector/e2e/history"
)

// Program is what torture and ha have in common.
type Program struct {
	Minutes float64
	Seed    uint64
	Faults  string // separated by commas; all if empty
	keep    string
}

// Parse parses the flags; the caller may have defined more. A run of no minutes is allowed if that is
// the default. -list and -judge end the program.
func (p *Program) Parse(minutes float64, says string, list func(), judge func([]history.Event) error) {
	flag.Float64Var(&p.Minutes, "minutes", minutes, says)
	flag.Uint64Var(&p.Seed, "seed", 0, "seed of the random choices; 0 chooses one")
	flag.StringVar(&p.Faults, "faults", "", "inject only these faults, separated by commas (see -list)")
	flag.StringVar(&p.keep, "keep", "", "keep the history in this file, also if the run passes")
	judged := flag.String("judge", "", "start nothing; check the history in this file")
	listed := flag.Bool("list", false, "list the faults")
	flag.Parse()
	switch {
	case flag.NArg() > 0 || p.Minutes < 0 || p.Minutes == 0 && minutes > 0:
		flag.Usage()
		os.Exit(2)
	case *listed:
		list()
		os.Exit(0)
	case *judged != "":
		events, err := history.Load(*judged)
		if err == nil {
			err = judge(events)
		}
		if err != nil {
			fmt.Println("FAILED:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if p.Seed == 0 {
		p.Seed = rand.Uint64N(1e9) + 1
	}
}

// Try calls run, which writes its history to the path, and returns the exit status. It keeps the
// history of a run that fails, and prints the command that repeats it.
func (p *Program) Try(name, command string, run func(ctx context.Context, path string) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	path := p.keep
	if path == "" {
		path = filepath.Join(os.TempDir(), fmt.Sprintf("pgelector-%s-%d.jsonl", name, p.Seed))
	}
	err := run(ctx, path)
	if err == nil && p.keep == "" {
		err = os.Remove(path)
	}
	if err != nil {
		fmt.Printf("\nFAILED: %v\n\nThe history is in %s\nTo repeat it: %s\n", err, path, command)
		return 1
	}
	return 0
}

// NothingLeft checks, after every candidate has left, that a query soon counts nothing on the
// server.
func NothingLeft(ctx context.Context, conn *pgx.Conn, checked, query string) (history.Proof, error) {
	p := history.Proof{Claim: "nothing was left behind", Checked: checked}
	for deadline := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		var left int
		err := conn.QueryRow(ctx, query).Scan(&left)
		if err != nil || left == 0 {
			return p, err
		}
		if time.Now().After(deadline) {
			p.Violations = append(p.Violations, fmt.Sprintf("%d are left of %s", left, query))
			return p, nil
		}
	}
}
