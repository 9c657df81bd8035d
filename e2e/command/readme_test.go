//go:build unix

package command_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pgelector/pgelector/e2e/docscheck"
)

// The test runs the README's first program as a reader would.
func TestTheFirstProgramOfTheReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	check(t, err)
	blocks, err := docscheck.Blocks(string(text))
	check(t, err)
	program := filepath.Join(t.TempDir(), "first")
	for _, block := range blocks {
		if block.Language == "go" {
			check(t, docscheck.Compile("../..", "README.md", block.Code, program))
			break
		}
	}
	start := func(dsn string) *running {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), at(dsn)...)
		return launchCommand(t, cmd)
	}
	dsn := database(t)
	first := start(dsn)
	first.logs(t, "leading, with token")
	second := start(dsn)
	second.logs(t, "leader changed") // it follows
	first.signal(t, 2)
	second.logs(t, "leading, with token")
	first.ends(t, 0)
	second.signal(t, 15)
	second.ends(t, 0)

	lost := start("postgres://nobody@127.0.0.1:1/")
	lost.logs(t, "database away")
	lost.logs(t, "connection refused")
	lost.signal(t, 15)
	lost.ends(t, 0)
}
