package simulation

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// childVariable marks a process that runs a part of the seeds. Each uses one processor: that is
// the fastest way to use them all, and leaves the fewest choices to the scheduler.
const childVariable = "PGELECTOR_SIMULATION_SHARE"

// A tally counts what the processes have done so far.
type tally struct {
	mu      sync.Mutex
	began   time.Time
	seeds   int
	terms   int
	virtual time.Duration
	failed  []string
}

// split runs the seeds in several processes.
func split(t *testing.T) {
	sum := &tally{began: time.Now()}
	var all sync.WaitGroup
	each := (*seeds + *processes - 1) / *processes
	for i := range *processes {
		first := *firstSeed + uint64(i*each)
		all.Go(func() { sum.run(first, min(each, *seeds-i*each)) })
	}
	ticker := time.NewTicker(10 * time.Second)
	defer ticker.Stop()
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	for waiting := true; waiting; {
		select {
		case <-ticker.C:
		case <-done:
			waiting = false
		}
		fmt.Println(sum)
	}
	for _, failed := range sum.failed {
		t.Error(failed)
	}
}

// run runs one process and reads its output.
func (s *tally) run(first uint64, n int) {
	if n <= 0 {
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestSimulation$", "-test.timeout=0", fmt.Sprint("-seed=", first), fmt.Sprint("-seeds=", n))
	child.Env = append(os.Environ(), "GOMAXPROCS=1", childVariable+"=1")
	out, in := io.Pipe()
	child.Stdout, child.Stderr = in, in
	read := make(chan string)
	go func() { read <- s.read(out) }()
	err := child.Run()
	_ = in.Close()
	if rest := <-read; err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failed = append(s.failed, fmt.Sprintf("%v:\n%s", err, rest))
	}
}

// read counts, and returns all other output since the last seed began.
func (s *tally) read(out io.Reader) string {
	var rest strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var n int
		s.mu.Lock()
		switch line := lines.Text(); {
		case scan(line, "seed %d", &n):
			s.seeds++
			rest.Reset()
			fmt.Fprintln(&rest, line)
		case scan(line, "terms %d", &n):
			s.terms += n
		case scan(line, "virtual %d", &n):
			s.virtual += time.Duration(n)
		default:
			fmt.Fprintln(&rest, line)
		}
		s.mu.Unlock()
	}
	return rest.String()
}

func scan(line, format string, n *int) bool {
	found, err := fmt.Sscanf(line, format, n)
	return found == 1 && err == nil
}

func (s *tally) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Since(s.began)
	text := fmt.Sprintf("%d seeds in %v, %.0f a second, %d failed", s.seeds, took.Round(time.Second), float64(s.seeds)/took.Seconds(), len(s.failed))
	if s.terms > 0 {
		text += fmt.Sprintf("; %d terms in %.0f days of virtual time", s.terms, s.virtual.Hours()/24)
	}
	return text
}
