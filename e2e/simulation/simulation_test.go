package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	seeds     = flag.Int("seeds", 200, "how many seeds")
	thisPlan  = flag.String("plan", "", "play this plan, as printed for one that failed, instead of seeds")
	simplify  = flag.Bool("simplify", true, "look for the simplest plan that fails, if one does")
	follow    = flag.Bool("follow", false, "log all that happens")
	processes = flag.Int("processes", 0, "share the seeds among so many processes, and show progress")
)

// TestSimulation plays as many seeds as it takes seconds for; make simulate plays more.
func TestSimulation(t *testing.T) {
	if *processes > 0 {
		share(t)
		return
	}
	if *thisPlan != "" {
		var p Plan
		if err := json.Unmarshal([]byte(*thisPlan), &p); err != nil {
			t.Fatalf("-plan: %v", err)
		}
		judged(t, p, play(t, p))
		return
	}
	terms, virtual := 0, time.Duration(0)
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		fmt.Fprintf(progress, "seed %d\n", seed)
		p := NewPlan(seed)
		o := play(t, p)
		terms, virtual = terms+o.Terms, virtual+o.Took
		if !judged(t, p, o) {
			return
		}
	}
	fmt.Fprintf(progress, "terms %d\nvirtual %d\n", terms, virtual)
	t.Logf("%d seeds, %d terms, %v of virtual time", *seeds, terms, virtual.Round(time.Second))
}

// progress is told to the process that has started this one, if one has.
var progress = func() *os.File {
	if os.Getenv(childVariable) == "" {
		null, _ := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		return null
	}
	return os.Stdout
}()

// play plays a plan in a bubble of its own.
func play(t *testing.T, p Plan) (o Outcome) {
	chance := source{rand: rand.New(rand.NewPCG(p.Seed, 1<<32))}
	backoff.DrawFrom(chance.draw)
	var log func(string, ...any)
	if *follow {
		log = t.Logf
	}
	synctest.Test(t, func(*testing.T) { o = Play(p, log) })
	return o
}

// judged reports whether all promises were kept. If not, it says by which simplest
// plan they were broken.
func judged(t *testing.T, p Plan, o Outcome) bool {
	t.Helper()
	if len(o.Violations) == 0 {
		return true
	}
	simplest := p
	if *simplify {
		simplest = simplestOf(t, p, &o)
	}
	text, _ := json.Marshal(simplest)
	t.Errorf("seed %d: %s\nof which is left:\n%s%s\nplay it again:\n  go -C e2e test ./simulation -run TestSimulation -follow -plan '%s'",
		p.Seed, p, simplest, strings.Join(o.Violations, "\n"), text)
	return false
}

// simplestOf shrinks a plan that fails, and leaves in o what came of the last.
func simplestOf(t *testing.T, p Plan, o *Outcome) Plan {
	return shrink(p, func(q Plan) bool {
		for range 3 { // the scheduler is not drawn from the seed
			if again := play(t, q); len(again.Violations) > 0 {
				*o = again
				return true
			}
		}
		return false
	})
}

// source is chance drawn from a seed.
type source struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (s *source) draw(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rand.Int64N(int64(d)))
}

func TestAPlanSurvivesBeingPrinted(t *testing.T) {
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
		t.Errorf("%d drawn, of %d", len(drawn), len(faults))
	}
}

func TestAFailingPlanIsMadeAsSimpleAsItCanBe(t *testing.T) {
	var p Plan
	for seed := uint64(0); len(p.Faults) < 4 || len(p.Candidates) < 3; seed++ {
		p = NewPlan(seed)
	}
	p.Faults[2].Kind, p.Faults[2].Of, p.Candidates[1].Watch = "freeze", 1, true
	fails := func(p Plan) bool {
		for _, f := range p.Faults {
			if f.Kind == "freeze" && p.Candidates[f.Of].Watch {
				return true
			}
		}
		return false
	}
	simplest := shrink(p, fails)
	if !fails(simplest) || len(simplest.Faults) != 1 || len(simplest.Candidates) != 1 || simplest.Latency != 0 {
		t.Errorf("left %s", simplest)
	}
}
