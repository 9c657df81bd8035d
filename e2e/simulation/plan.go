package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A Plan is one simulation: all that is drawn from its seed. Running it again does
// the same again, as far as the Go runtime lets it.
type Plan struct {
	Seed      uint64
	Lease     time.Duration
	Drain     time.Duration
	Heartbeat time.Duration
	Retry     time.Duration
	Latency   time.Duration // the longest, one way
	ClockRate float64       // of the server, against that of its clients
	Elections int
	// Synchronous is that commits wait for a standby, and all candidates have
	// WithSynchronousStandby.
	Synchronous bool
	Candidates  []Candidate
	Faults      []Fault
}

// A Candidate is one process.
type Candidate struct {
	Starts time.Duration // after the beginning
	Kind   Kind
	// Standby and Interval are WithStandby and WithDeputyInterval, which a Session has not.
	Standby  elector.Standby
	Interval time.Duration
	Watch    bool // WithWatch
	Writes   bool // in transactions of the term
	Health   bool // WithHealth
	Wakes    bool // WithNotifier
	Wills    bool // resigns in favour of another
	Driver   electortest.Driver
}

// A Kind is how a candidate uses the library.
type Kind string

const (
	runs      Kind = "Run"
	campaigns Kind = "Campaign"
	tries     Kind = "TryCampaign"
	starts    Kind = "Start"
	shares    Kind = "Session" // all elections, on one session
)

var kinds = []Kind{runs, runs, campaigns, tries, starts, shares}

// A Fault is something that goes wrong for a while.
type Fault struct {
	At    time.Duration // after the beginning
	Lasts time.Duration // before it is undone
	Kind  FaultKind
	Of    int // the candidate that it hits, or other than a candidate's, nobody
}

// bounds of what is drawn.
const (
	mostCandidates = 4
	mostElections  = 2
	mostFaults     = 5
	period         = 12 * time.Second // in which faults begin
)

// NewPlan draws a plan.
func NewPlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := Plan{Seed: seed, Lease: time.Second + rand.N(4*time.Second), ClockRate: 1}
	p.Lease = between(r, time.Second, 5*time.Second).Truncate(time.Millisecond)
	p.Drain = between(r, 0, p.Lease/3)
	p.Heartbeat = between(r, max(50*time.Millisecond, p.Lease/10), (p.Lease-p.Lease/10-p.Drain)/2)
	p.Retry = between(r, 50*time.Millisecond, time.Second)
	p.Latency = pick(r, 0, time.Millisecond, 20*time.Millisecond, p.Heartbeat/4)
	p.ClockRate = 0.92 + 0.16*r.Float64()
	p.Elections = 1 + r.IntN(mostElections)
	for range 1 + r.IntN(mostCandidates) {
		p.Candidates = append(p.Candidates, newCandidate(r, p.Heartbeat))
	}
	for range r.IntN(mostFaults + 1) {
		p.Faults = append(p.Faults, newFault(r, p, faultKinds))
	}
	p.replicate(rand.New(rand.NewPCG(seed, 1<<33)))
	return p
}

// replicate draws whether commits wait for a standby, and what goes wrong with that.
func (p *Plan) replicate(r *rand.Rand) {
	if p.Synchronous = r.IntN(4) == 0; !p.Synchronous {
		return
	}
	for i := range p.Candidates {
		if c := &p.Candidates[i]; c.Kind == shares { // which cannot have the option
			c.Kind = runs
		}
	}
	for range 1 + r.IntN(2) {
		p.Faults = append(p.Faults, newFault(r, *p, replicationFaults))
	}
}

func newCandidate(r *rand.Rand, heartbeat time.Duration) Candidate {
	c := Candidate{Starts: between(r, 0, time.Second), Kind: pick(r, kinds...), Watch: r.IntN(3) == 0, Writes: r.IntN(2) == 0,
		Health: r.IntN(3) == 0, Wakes: r.IntN(3) == 0, Wills: r.IntN(3) == 0,
		Driver: pick(r, electortest.PGX, electortest.PQ)}
	c.Standby = pick(r, elector.Deputy, elector.Deputy, elector.Wait, elector.Poll)
	c.Interval = between(r, 10*time.Millisecond, heartbeat)
	return c
}

func newFault(r *rand.Rand, p Plan, kinds []FaultKind) Fault {
	return Fault{At: between(r, 0, period), Kind: pick(r, kinds...), Of: r.IntN(len(p.Candidates)),
		Lasts: between(r, 0, pick(r, p.Heartbeat, p.Lease, 2*p.Lease))}
}

// between draws a duration from the first up to the second.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// String writes the plan for people.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: lease %v, drain %v, heartbeat %v, retry %v, latency up to %v, server's clock × %.3f, %d elections, synchronous %v\n",
		p.Seed, p.Lease, p.Drain, p.Heartbeat, p.Retry, p.Latency, p.ClockRate, p.Elections, p.Synchronous)
	for i, c := range p.Candidates {
		fmt.Fprintf(&b, "  candidate %d: %+v\n", i, c)
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  at %v for %v: %s of %d\n", f.At, f.Lasts, f.Kind, f.Of)
	}
	return b.String()
}
