//go:build unix

package runner

import (
	"context"
	"fmt"
	"strings"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/supervise"
	"github.com/pgelector/pgelector/elector"
)

// health returns the option by which a command decides about the health. The reaper starts it.
func (c *Config) health(reaper func() *supervise.Reaper) elector.CommonOption {
	return elector.WithHealth(func(ctx context.Context) elector.HealthReport { return checkBy(ctx, reaper(), c.HealthCommand) },
		elector.HealthPolicy{Interval: c.HealthInterval})
}

// maxWhy bounds what is kept of the command's output.
const maxWhy = 200

// told stands before the exit code in the last line.
const told = "pgelector: the health command ended with "

// script runs the command, tells its exit code, and then kills its own process group: whatever the command
// has left behind ends with the check.
const script = `/bin/sh -c "$1"; printf '\n%s%d\n' "$2" "$?"; kill -s KILL 0`

// checkBy runs a command of the shell. It is healthy if it succeeds. The last line that it wrote says why.
func checkBy(ctx context.Context, reaper *supervise.Reaper, command string) elector.HealthReport {
	out, err := reaper.Output(ctx, maxWhy+len(told), "/bin/sh", "-c", script, "sh", command, told)
	text, code, ended := strings.Cut(strings.ToValidUTF8(string(out), "?"), told)
	text = strings.TrimSpace(text)
	why := text[strings.LastIndexByte(text, '\n')+1:]
	switch code = strings.TrimSpace(code); {
	case ended && code == "0":
		return elector.HealthReport{Score: 1, Why: why}
	case ended && why != "":
		return elector.HealthReport{Why: why}
	case ended:
		return elector.HealthReport{Why: "the health command ended with " + code}
	}
	return elector.HealthReport{Why: fmt.Sprintf("the health command did not end: %v", err)}
}
