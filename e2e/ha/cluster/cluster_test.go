//go:build unix

package cluster

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/must"
)

// childVariable makes the test binary start a cluster and wait to be killed.
const childVariable = "CLUSTER_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if _, err := Start(context.Background()); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {}
	}
	goleak.VerifyTestMain(m)
}

// The servers are daemons that Patroni started, so the sandbox does not list them.
func TestKillingTheProgramLeavesNothingBehind(t *testing.T) {
	if err := Missing(t.Context()); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	tmp := must.Root(t)
	child := must.Spawn(t, childVariable+"=1", "TMPDIR="+tmp)
	if n := len(must.Leftovers(t, tmp)); n < 20 {
		t.Errorf("%d processes and files belong to the cluster: too few", n)
	}
	must.Check(t, child.Process.Kill())
	_ = child.Wait()
	must.Vanish(t, tmp)
}
