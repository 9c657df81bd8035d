package election_test

import (
	"testing"

	"github.com/pgelector/pgelector/internal/election/alone"
)

// The kernel is what compiles and elects alone: the compiler is the wall. e2e/alone has the same on PostgreSQL.
func TestTheKernelElectsAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles a module")
	}
	const programs = "internal/election/alone/testdata/"
	alone.Run(t, alone.Build(t, alone.Copy(t, "", "electortest", programs+"elect.go.txt", programs+"memory.go.txt")))
}
