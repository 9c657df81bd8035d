//go:build linux

// Command bench compares ways to elect a leader. README.md says how to run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pgelector/pgelector/bench/internal/child"
	"github.com/pgelector/pgelector/bench/internal/measure"
	"github.com/pgelector/pgelector/bench/internal/member"
	"github.com/pgelector/pgelector/bench/internal/report"
	"github.com/pgelector/pgelector/bench/internal/servers"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case child.Role:
			return child.Main(os.Stdin, os.Stdout)
		case member.Role:
			return member.Main(os.Stdin, os.Stdout)
		case servers.EtcdRole:
			return servers.EtcdMain(os.Args[2:])
		}
	}
	var plan measure.Plan
	quick := flag.Bool("quick", false, "take about five minutes instead of 50: fewer samples, fewer rows")
	dir := flag.String("out", ".", "the directory for RESULTS.md, results.json and plots/")
	again := flag.Bool("again", false, "measure nothing: write RESULTS.md and the plots from results.json")
	keep := flag.Bool("keep", false, "keep what this run does not measure from results.json")
	flag.StringVar(&plan.Only, "only", "", "measure only systems whose name contains this")
	flag.StringVar(&plan.Parts, "parts", "failover,restart,rest,growth,shards,inprocess,built", "what to measure; mistakes is not among them")
	flag.Float64Var(&plan.Minutes, "minutes", 15, "count the mistakes of each system under each strain for that long")
	flag.Parse()
	if *again {
		return report.Again(*dir)
	}
	plan.SetQuick(*quick)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	results, err := measure.Run(ctx, plan, os.Stderr)
	if results == nil {
		return err
	}
	if *keep {
		before, failed := report.Read(*dir)
		if err = errors.Join(err, failed); failed == nil {
			results.Keep(before, systems.Names())
		}
	}
	return errors.Join(err, report.Write(*dir, results))
}
