//go:build unix

package cluster

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/sandbox"
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
	tmp := t.TempDir()
	for _, dir := range []string{filepath.Dir(tmp), tmp} {
		if err := os.Chmod(dir, 0o755); err != nil { // the servers may run as another user
			t.Fatal(err)
		}
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childVariable+"=1", "TMPDIR="+tmp)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	said, _ := bufio.NewReader(out).ReadString('\n')
	if said != "ready\n" {
		t.Errorf("the child said %q", said)
	}
	if n := len(left(t, tmp)); n < 20 {
		t.Errorf("%d processes and files belong to the cluster: too few", n)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	for deadline := time.Now().Add(40 * time.Second); len(left(t, tmp)) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %q", left(t, tmp))
		}
	}
}

// left returns what sandbox.Leftovers does.
func left(t *testing.T, dir string) []string {
	t.Helper()
	found, err := sandbox.Leftovers(dir)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
