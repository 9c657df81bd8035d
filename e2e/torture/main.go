//go:build linux

package main

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

	"github.com/pgelector/pgelector/e2e/fleet"
)

func main() {
	fleet.Be()
	var c config
	flag.Float64Var(&c.minutes, "minutes", 2, "for how long")
	flag.Uint64Var(&c.seed, "seed", 0, "of what is drawn; 0 draws one")
	flag.StringVar(&c.faults, "faults", "", "only these, separated by commas (see -list)")
	flag.StringVar(&c.keep, "keep", "", "keep the history in this file, also of a good run")
	flag.StringVar(&c.summary, "summary", "", "write the run's figures and timeline to this file, as JSON")
	flag.StringVar(&c.judge, "judge", "", "strike at nothing, but judge the history in this file")
	list := flag.Bool("list", false, "list the faults")
	flag.Parse()
	switch {
	case flag.NArg() > 0 || c.minutes <= 0:
		flag.Usage()
		os.Exit(2)
	case *list:
		listFaults(os.Stdout)
		return
	case c.judge != "":
		if err := judgeAgain(c); err != nil {
			fmt.Println("FAILED:", err)
			os.Exit(1)
		}
		return
	}
	if c.seed == 0 {
		c.seed = rand.Uint64N(1e9) + 1
	}
	os.Exit(inNamespaces(func(without error) int { return torture(c, without) }))
}

// config is what a run is told.
type config struct {
	minutes       float64
	seed          uint64
	faults        string
	keep, summary string
	judge         string
}

func (c config) duration() time.Duration { return time.Duration(c.minutes * float64(time.Minute)) }

// torture returns the exit status. without is why there are no namespaces, if so.
func torture(c config, without error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	path := c.keep
	if path == "" {
		path = filepath.Join(os.TempDir(), fmt.Sprintf("pgelector-torture-%d.jsonl", c.seed))
	}
	err := run(ctx, c, path, without)
	if err == nil && c.keep == "" {
		err = os.Remove(path)
	}
	if err != nil {
		fmt.Printf("\nFAILED: %v\n\nThe history is in %s\nThe same draw again: go run ./e2e/torture -minutes=%g -seed=%d -faults=%s\n", err, path, c.minutes, c.seed, c.faults)
		return 1
	}
	return 0
}

// bound is when somebody must lead again once all faults have ended: what was
// frozen or cut off may hold the lock for a lease, and its transaction may hold
// up the next leader for two; candidates look again after the backoff; the rest
// is for a busy machine.
const bound = 3*fleet.Lease + fleet.Backoff + 15*time.Second
