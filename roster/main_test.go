//go:build unix

package roster

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/internal/pgcluster"
)

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }
