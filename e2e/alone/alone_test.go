//go:build unix

// Package alone_test shows that the kernel of an election elects alone on PostgreSQL, over both drivers.
package alone_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/internal/election/alone"
)

// The kernel is copied into a module that has the two drivers besides. Two candidates elect there, hand over, and survive a
// kill of the leader's backend and a leader whose link is cut.
func TestTheKernelElectsAloneOnPostgreSQL(t *testing.T) {
	const programs = "internal/election/alone/testdata/"
	dir := alone.Copy(t, drivers(t), programs+"elect.go.txt", programs+"postgres.go.txt")
	sums, err := os.ReadFile(filepath.Join("..", "..", "go.sum"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := alone.Build(t, dir)
	c, err := pgcluster.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) { alone.Run(t, program, driver, c.Addr(), c.DSN()) })
	}
}

// drivers are the lines of the root's go.mod that require the drivers and what they stand on.
func drivers(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^(?:require )?\s*((?:github.com/(?:jackc|lib)|golang.org/x)/\S+ v\S+)`).FindAllStringSubmatch(string(text), -1)
	var require strings.Builder
	for _, line := range lines {
		require.WriteString("require " + line[1] + "\n")
	}
	return require.String()
}
