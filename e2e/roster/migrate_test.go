//go:build unix

// Package roster_test runs the internal tests of package roster that need a server.
package roster_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }

func TestMigrations(t *testing.T) {
	command := exec.Command("go", "test", "-count=1", "-v", "-run=Migrat", "./roster")
	command.Dir = "../.." // another module
	command.Env = append(os.Environ(), "PGELECTOR_ROSTER_DSN="+shared.Get(t).DSN())
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestAMigrationThatFails") || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
}
