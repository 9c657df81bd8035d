//go:build unix

package rolling

import (
	"bufio"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

var processes = flag.Int("processes", 0, "how many updates of real processes, at once, each with and without priorities; they take nine minutes")

// The program on PostgreSQL, with its default timing: it shows that the table in virtual time is no artifact. TERM ends each process.
func TestARollingUpdateOfProcessesMovesLeadershipAtMostTwice(t *testing.T) {
	if *processes == 0 {
		t.Skip("-processes 5 runs it")
	}
	program := filepath.Join(t.TempDir(), "pgelector")
	build := exec.Command("go", "build", "-o", program, "./cmd/pgelector")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cluster, err := pgcluster.Start(t.Context(), pgcluster.WithSetting("max_connections", "400"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Stop()
	var all sync.WaitGroup
	for _, prefers := range []bool{false, true} {
		for i := range *processes {
			all.Go(func() {
				n := movesOfProcesses(t, program, cluster.DSN(), fmt.Sprintf("orders-%d-%t", i, prefers), i, prefers)
				t.Logf("update %d, with priorities %t: leadership has moved %d times", i, prefers, n)
				if prefers && n > 2 {
					t.Errorf("update %d: leadership has moved %d times", i, n)
				}
			})
		}
	}
	all.Wait()
}

// movesOfProcesses is moves with a pace of 75 s. first is the replica that is replaced first.
func movesOfProcesses(t *testing.T, program, dsn, election string, first int, prefers bool) int {
	var elected atomic.Int32
	start := func(n, version int) (end func()) {
		args := []string{"lead", election, "--http", "127.0.0.1:0", "--log-json", "--dsn", dsn, "--candidate", fmt.Sprintf("web-%d.%d", n, version)}
		if prefers {
			args = append(args, "--priority", strconv.Itoa(version))
		}
		cmd := exec.Command(program, args...)
		log, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Error(err)
			return func() {}
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			for lines := bufio.NewScanner(log); lines.Scan(); {
				if strings.Contains(lines.Text(), `"@message":"elected`) {
					elected.Add(1)
				}
			}
		}()
		return func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-read
			_ = cmd.Wait()
		}
	}
	var ends [replicas]func()
	for n := range replicas {
		ends[n] = start(n, 1)
		time.Sleep(time.Second)
	}
	time.Sleep(70 * time.Second)
	before := elected.Load()
	for k := range replicas {
		n := (first + k) % replicas
		ends[n]()
		time.Sleep(2 * time.Second)
		ends[n] = start(n, 2)
		time.Sleep(73 * time.Second)
	}
	time.Sleep(15 * time.Second)
	n := elected.Load() - before
	for _, end := range ends {
		end()
	}
	return int(n)
}
