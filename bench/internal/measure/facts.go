package measure

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/world"
)

// compared are the modules whose versions matter.
var compared = []string{
	"github.com/jackc/pgx/v5", "github.com/lib/pq", "github.com/riverqueue/river", "github.com/hashicorp/vault",
	"github.com/pressly/goose/v3", "github.com/golang-migrate/migrate/v4", "go.etcd.io/etcd/server/v3",
}

// facts are about the machine and the versions.
func facts(ctx context.Context, w *world.World) ([]results.Fact, error) {
	var version string
	if err := w.Admin.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return nil, err
	}
	all := []results.Fact{
		{Name: "processor", Value: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), fromFile("/proc/cpuinfo", "model name"))},
		{Name: "memory", Value: fromFile("/proc/meminfo", "MemTotal")},
		{Name: "load before", Value: firstLine("/proc/loadavg")},
		{Name: "kernel", Value: runtime.GOOS + " " + firstLine("/proc/sys/kernel/osrelease")},
		{Name: "Go", Value: runtime.Version()},
		{Name: "PostgreSQL", Value: version},
		{Name: "durability", Value: world.Durable},
		{Name: "network", Value: "loopback TCP, no TLS"},
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, wanted := range compared {
			for _, m := range build.Deps {
				if m.Path == wanted {
					all = append(all, results.Fact{Name: m.Path, Value: m.Version})
				}
			}
		}
	}
	return all, nil
}

// fromFile is the value behind a key in a file of lines "key: value".
func fromFile(file, key string) string {
	text, _ := os.ReadFile(file) // empty if there is none
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func firstLine(file string) string {
	text, _ := os.ReadFile(file)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
