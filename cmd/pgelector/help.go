package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroups are the questions that the flags of run and lead answer, in the order of --help.
var flagGroups = []struct {
	title string
	flags []string
}{
	{"Who leads", []string{"election", "candidate", "group", "shards", "moves", "most", "sticky"}},
	{"When this host leads", []string{"if-free", "wait", "if-free-exit-code", "takeover", "deputy-interval", "retry", "lease", "heartbeat", "validate", "priority", "preempt-delay"}},
	{"What runs, and how often", []string{"once", "restart-delay", "restart-delay-max", "hold"}},
	{"How it ends", []string{"drain", "grace"}},
	{"What it serves and logs", []string{"health-command", "health-interval", "http", "roster", "log-level", "log-json"}},
	{"The connection", []string{"dsn", "driver", "scope", "lock-delay", "synchronous-standby", "token-epoch", "max-attempts", "read-only-timeout"}},
}

// helpWidth is that of a terminal.
const helpWidth = 100

// moreOfCommand is the page that has what --help leaves out.
const moreOfCommand = "https://github.com/pgelector/pgelector/blob/main/docs/command.md"

// groupFlags has --help show the flags of a command in groups. A test holds the groups complete.
func groupFlags(cmd *cobra.Command) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		fmt.Fprintf(out, "Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
		for _, group := range flagGroups {
			shown := pflag.NewFlagSet(group.title, pflag.ContinueOnError)
			shown.SortFlags = false
			for _, name := range group.flags {
				if f := cmd.Flags().Lookup(name); f != nil {
					shown.AddFlag(f)
				}
			}
			if shown.HasFlags() {
				fmt.Fprintf(out, "\n%s:\n%s", group.title, shown.FlagUsagesWrapped(helpWidth))
			}
		}
		return nil
	})
}
