package simulation

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/preference"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	preference.MinTerm = 2 * time.Second // as long as some terms
	goleak.VerifyTestMain(m)
}

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	seeds     = flag.Int("seeds", 200, "how many seeds")
	thisPlan  = flag.String("plan", "", "run this plan, as printed by a failure, instead of seeds")
	simplify  = flag.Bool("simplify", true, "simplify a plan that fails")
	follow    = flag.Bool("follow", false, "log every step")
	processes = flag.Int("processes", 0, "split the seeds among this many processes, and show progress")
)

// TestSimulation runs a few seeds; make simulate runs more.
func TestSimulation(t *testing.T) {
	if *processes > 0 {
		split(t)
		return
	}
	if *thisPlan != "" {
		var p Plan
		if err := json.Unmarshal([]byte(*thisPlan), &p); err != nil {
			t.Fatalf("-plan: %v", err)
		}
		passes(t, p, run(t, p))
		return
	}
	terms, virtual := 0, time.Duration(0)
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		fmt.Fprintf(progress, "seed %d\n", seed)
		p := NewPlan(seed)
		o := run(t, p)
		terms, virtual = terms+o.Terms, virtual+o.Took
		if !passes(t, p, o) {
			return
		}
	}
	fmt.Fprintf(progress, "terms %d\nvirtual %d\n", terms, virtual)
	t.Logf("%d seeds, %d terms, %v of virtual time", *seeds, terms, virtual.Round(time.Second))
}

// progress is for the process that started this one, if it is a child.
var progress = func() *os.File {
	if os.Getenv(childVariable) == "" {
		null, _ := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		return null
	}
	return os.Stdout
}()

// run runs a plan in a bubble of its own.
func run(t *testing.T, p Plan) (o Outcome) {
	c := chance{rand: rand.New(rand.NewPCG(p.Seed, 1<<32))}
	backoff.DrawFrom(func(d time.Duration) time.Duration { return c.draw(0, d) })
	var log func(string, ...any)
	if *follow {
		log = t.Logf
	}
	watch := time.AfterFunc(stillAfter, func() { standsStill(p.Seed) })
	defer watch.Stop()
	synctest.Test(t, func(*testing.T) { o = Run(p, log) })
	return o
}

// stillAfter is how long a seed may take, in real time. Most take a tenth of a second.
const stillAfter = 3 * time.Minute

// stoodStill is how a child exits whose seed could not go on.
const stoodStill = 3

// standsStill ends a process whose seed does not go on. No time passes in a bubble while a goroutine in it waits for a mutex, and
// database/sql has one for each connection: when a context ends, it rolls back in a goroutine that waits there for the call of a process
// that a fault has frozen. On a real clock the call has a bound; here the seed ends undecided.
func standsStill(seed uint64) {
	stacks := make([]byte, 1<<22)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for one := range strings.SplitSeq(string(stacks), "\n\n") {
		header, calls, _ := strings.Cut(one, "\n")
		if os.Getenv(childVariable) != "" && strings.Contains(header, "bubble") && strings.Contains(header, "Mutex.") && strings.Contains(calls, "database/sql.") {
			os.Exit(stoodStill)
		}
	}
	panic(fmt.Sprintf("seed %d stands still:\n%s", seed, stacks))
}

// passes reports whether all promises were kept. If not, the test fails with the simplest plan
// that breaks one.
func passes(t *testing.T, p Plan, o Outcome) bool {
	t.Helper()
	if len(o.Violations) == 0 {
		return true
	}
	simplest := p
	if *simplify {
		simplest = simplified(t, p, &o)
	}
	text, _ := json.Marshal(simplest)
	t.Errorf("seed %d: %s\nsimplified:\n%s%s\nrun it again:\n  go -C e2e test ./simulation -run TestSimulation -follow -plan '%s'",
		p.Seed, p, simplest, strings.Join(o.Violations, "\n"), text)
	return false
}

// simplified shrinks a plan that fails, and sets o to the outcome of the result.
func simplified(t *testing.T, p Plan, o *Outcome) Plan {
	return shrink(p, func(q Plan) bool {
		for range 3 { // the seed does not control the scheduler
			if again := run(t, q); len(again.Violations) > 0 {
				*o = again
				return true
			}
		}
		return false
	})
}

func TestAPlanCanBePrintedAndParsed(t *testing.T) {
	for seed := range uint64(50) {
		p := NewPlan(seed)
		text, err := json.Marshal(p)
		var back Plan
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil || back.String() != p.String() {
			t.Fatalf("%v\n%s\n%s", err, p, back)
		}
	}
}

func TestEveryFaultIsDrawn(t *testing.T) {
	drawn := map[FaultKind]bool{}
	for seed := range uint64(500) {
		for _, f := range NewPlan(seed).Faults {
			drawn[f.Kind] = true
		}
	}
	if len(drawn) != len(faults) {
		t.Errorf("%d of %d kinds of faults are drawn", len(drawn), len(faults))
	}
}

// The host of the server dies while a candidate leads, and another candidate starts when there is a
// server again.
func TestAHostThatDiesMakesTwoLeadersUnlessTheLockIsDelayed(t *testing.T) {
	plan := func(seed uint64, kind FaultKind, delays bool) Plan {
		c := Candidate{Kind: runs, Takeover: elector.Poll, Interval: 100 * time.Millisecond}
		late := c
		late.Starts = 9500 * time.Millisecond
		return Plan{Seed: seed, Lease: 5 * time.Second, Drain: time.Second, Heartbeat: time.Second, Retry: 100 * time.Millisecond, ClockRate: 1, Elections: 1,
			LockDelay: delays, Candidates: []Candidate{c, late}, Faults: []Fault{{At: 8 * time.Second, Lasts: 4 * time.Second, Kind: kind}}}
	}
	for _, kind := range []FaultKind{"host dies", "host dies, failover"} {
		overlaps := map[bool]int{}
		for seed := range uint64(20) {
			for _, delays := range []bool{false, true} {
				o := run(t, plan(seed, kind, delays))
				for _, violation := range o.Violations {
					t.Errorf("%s, seed %d, lock delay %v: %s", kind, seed, delays, violation)
				}
				if o.Overlapped {
					overlaps[delays]++
				}
			}
		}
		if overlaps[false] == 0 || overlaps[true] > 0 {
			t.Errorf("%s: two led in %d of 20 runs without a lock delay, and in %d with one", kind, overlaps[false], overlaps[true])
		}
	}
}

func TestAFailingPlanIsSimplified(t *testing.T) {
	var p Plan
	for seed := uint64(0); len(p.Faults) < 4 || len(p.Candidates) < 3; seed++ {
		p = NewPlan(seed)
	}
	p.Faults[2].Kind, p.Faults[2].Of, p.Candidates[1].Writes = "freeze", 1, true
	fails := func(p Plan) bool {
		for _, f := range p.Faults {
			if f.Kind == "freeze" && p.Candidates[f.Of].Writes {
				return true
			}
		}
		return false
	}
	simplest := shrink(p, fails)
	if !fails(simplest) || len(simplest.Faults) != 1 || len(simplest.Candidates) != 1 || simplest.Latency != 0 {
		t.Errorf("simplified to %s", simplest)
	}
}

// Three candidates take turns in an election, about a minute each, for six hours.
func TestHoursOfElectionsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		ctx, stop := context.WithCancel(t.Context())
		terms, done := make(chan int), make(chan error)
		for _, takeover := range []elector.Takeover{elector.Deputy, elector.Wait, elector.Poll} {
			pool := server.Open()
			defer pool.Close()
			e := must(elector.New(pool, "orders", elector.WithLease(30*time.Second), elector.WithRetryInterval(5*time.Second), elector.WithTakeover(takeover)))
			go func() {
				for ctx.Err() == nil {
					_ = e.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
						terms <- 1
						sleep(ctx, time.Minute)
						return nil
					})
					sleep(ctx, 20*time.Second)
				}
				done <- nil
			}()
		}
		n := 0
		elect := func(limit int, d time.Duration) usage {
			for end := time.Now().Add(d); n < limit && time.Now().Before(end); n++ {
				<-terms
			}
			synctest.Wait()
			return measure(server)
		}
		early := elect(20, time.Hour)
		late := elect(1<<30, 6*time.Hour)
		if n < 250 {
			t.Errorf("%d terms in six hours", n)
		}
		if late.goroutines > early.goroutines+10 || late.connections > early.connections+3 || late.heap > 2*early.heap+1<<20 {
			t.Errorf("after %d terms: %+v, after the first: %+v", n, late, early)
		}
		t.Logf("%d terms: %+v, after the first: %+v", n, late, early)
		stop()
		for range 3 {
			<-done
		}
	})
}

// usage is what the process and the server use.
type usage struct {
	goroutines, connections int
	heap                    uint64 // bytes
}

func measure(server *electortest.Server) usage {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{goroutines: runtime.NumGoroutine(), connections: server.Connections(), heap: m.HeapAlloc}
}

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
	still   []int // seeds that could not go on
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
	if n := len(sum.still); n > 1+*seeds/1000 {
		t.Errorf("%d seeds could not go on: %d", n, sum.still)
	} else if n > 0 {
		t.Logf("%d seeds could not go on, and are not judged (see standsStill): %d", n, sum.still)
	}
}

// run runs one process and reads its output. After a seed that could not go on, another process takes the rest.
func (s *tally) run(first uint64, n int) {
	for last := int(first) + n; int(first) < last; {
		child := exec.Command(os.Args[0], "-test.run=^TestSimulation$", "-test.timeout=0", fmt.Sprint("-seed=", first), fmt.Sprint("-seeds=", last-int(first)))
		child.Env = append(os.Environ(), "GOMAXPROCS=1", childVariable+"=1")
		out, in := io.Pipe()
		child.Stdout, child.Stderr = in, in
		var seed int
		var rest string
		read := make(chan struct{})
		go func() {
			defer close(read)
			seed, rest = s.read(out)
		}()
		err := child.Run()
		_ = in.Close()
		<-read
		s.mu.Lock()
		switch {
		case err == nil:
			first = uint64(last)
		case child.ProcessState.ExitCode() == stoodStill:
			first = uint64(seed + 1)
			s.still = append(s.still, seed)
		default:
			first = uint64(last)
			s.failed = append(s.failed, fmt.Sprintf("%v:\n%s", err, rest))
		}
		s.mu.Unlock()
	}
}

// read counts, and returns the last seed with all other output since it began.
func (s *tally) read(out io.Reader) (seed int, output string) {
	var rest strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var n int
		s.mu.Lock()
		switch line := lines.Text(); {
		case scan(line, "seed %d", &n):
			s.seeds++
			seed = n
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
	return seed, rest.String()
}

func scan(line, format string, n *int) bool {
	found, err := fmt.Sscanf(line, format, n)
	return found == 1 && err == nil
}

func (s *tally) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Since(s.began)
	text := fmt.Sprintf("%d kinds of faults; %d seeds in %v, %.0f a second, %d failed", len(faults), s.seeds, took.Round(time.Second), float64(s.seeds)/took.Seconds(), len(s.failed))
	if s.terms > 0 {
		text += fmt.Sprintf("; %d terms in %.0f days of virtual time", s.terms, s.virtual.Hours()/24)
	}
	return text
}
