// Package results holds the figures of one run.
package results

import (
	"math"
	"slices"
	"time"
)

// Parallel is the number of slow failovers that are measured at the same time. Their candidates mostly sleep.
const Parallel = 14

// SecondKill is the time between the two faults of systems.KillAgain. It is longer if nobody leads by then.
const SecondKill = 500 * time.Millisecond

// Results holds one run.
type Results struct {
	Command   string
	Commit    string
	Date      time.Time
	Took      time.Duration
	Quick     bool
	Kept      []Kept // of earlier runs
	Facts     []Fact
	Systems   []System
	Failovers []Failover
	Rest      []Rest
	Growth    []Growth
	Shards    []Shards
	InProcess []InProcess
	Mistakes  []Mistakes
}

// Kept says which rows are of an earlier run.
type Kept struct {
	Command, Commit string
	Date            time.Time
	Rows            []Row
}

// Row names samples that one run measures together.
type Row struct{ Kind, System, Case string }

// MeasuredAt is the commit of the run that has measured a row.
func (r *Results) MeasuredAt(row Row) string {
	for _, k := range r.Kept {
		if slices.Contains(k.Rows, row) {
			return k.Commit
		}
	}
	return r.Commit
}

// Fact is one line about the machine.
type Fact struct{ Name, Value string }

// System describes a systems.System.
type System struct {
	Name, Settings, For, Blind string
	Cannot, Never              map[string]string
}

// Failover is one sample. Times are in milliseconds; nil means that it did not happen within Cap.
type Failover struct {
	System, Fault string
	Gap           *float64 // from the fault to the start of the next leader's work
	Stale         *float64 // from the fault until the old leader no longer regards itself as the leader
	Overlap       *float64 // from the start of the next leader's work until then
	Cap           float64
	Blind         bool // the old leader does not notice the loss: there is no Stale and no Overlap
}

// Rest is the cost of one candidate while no leader changes.
type Rest struct {
	System, Role string
	Elections    int
	Seconds      float64
	Statements   float64 // per second; -1 if not counted
	ServerCPU    float64 // milliseconds per second
	ClientCPU    float64
	RSS          float64 // MiB, of the candidate's process
	Connections  float64
	Pinned       float64 // connections that the candidate does not return to its pool; -1 if not counted
	WAL          float64 // bytes per hour, caused by leader and follower together
}

// Growth is one system at one size.
type Growth struct {
	System                string
	Elections, Candidates int
	Followers             int // processes
	Leader, Follower      Rest
	ServerRSS             float64    // MiB, of the backends of all candidates, without shared memory
	First, All            []*float64 // ms from each kill -9 until the first election, and all, have a leader again
	Error                 string
}

// Shards is a group of shards at one size.
type Shards struct {
	Shards, Members      int
	Start                *float64   // ms until the shards are even
	Join, Leave, Kill    []*float64 // the same
	Statements           float64    // of one member, per second
	ServerCPU, ClientCPU float64    // milliseconds per second
	Restarts             int        // of single members, one by one
	Moves                float64    // of each shard in each restart
	MostMoves            int        // of one shard in one restart
	Error                string
}

// InProcess is one testing.Benchmark.
type InProcess struct {
	Name        string
	NsOp        float64
	AllocsOp    int64
	BytesOp     int64
	Repetitions int
	Server      bool
}

// Mistakes counts the terms that leaders have lost although neither server nor network had a fault.
type Mistakes struct {
	System, Strain string
	Leaders        int     // each in a process of its own
	Hours          float64 // of all leaders together
	Lost           int
	Error          string
}

// Row names the count.
func (m Mistakes) Row() Row { return Row{"mistakes", m.System, m.Strain} }

// Total returns a cost of all processes together.
func (g Growth) Total(cost func(Rest) float64) float64 {
	return cost(g.Leader) + float64(g.Followers)*cost(g.Follower)
}

// The benchmarks that a goal compares with, without the driver's name.
const (
	RoundTrip = "a round trip (SELECT 1), "
	Flush     = "a round trip with a WAL flush, which each token needs, "
	IdleFlush = "the same on a connection that was idle, as a waiting deputy's is, "
	IsLeader  = "IsLeader, leading"
	EndedWait = "a statement of an idle leader, which ends its wait for a loss, pgx"
	NoWait    = "the same on a connection that is not waited on, pgx"
)

// Call returns the milliseconds of a benchmark, or NaN.
func (r *Results) Call(name string) float64 {
	for _, b := range r.InProcess {
		if b.Name == name {
			return b.NsOp / 1e6
		}
	}
	return math.NaN()
}

// Stats summarizes samples.
type Stats struct {
	N, Missing       int     // Missing samples did not happen within Cap
	Median, P99, Max float64 // NaN without samples
}

// Summarize counts missing samples as infinite.
func Summarize(values []*float64) Stats {
	s := Stats{N: len(values)}
	all := make([]float64, 0, len(values))
	for _, v := range values {
		if v == nil {
			s.Missing++
			all = append(all, math.Inf(1))
		} else {
			all = append(all, *v)
		}
	}
	slices.Sort(all)
	s.Median, s.P99, s.Max = quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1)
	return s
}

// quantile returns the nearest rank.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Select returns one value of each failover of a system after a fault.
func (r *Results) Select(system, fault string, value func(Failover) *float64) []*float64 {
	var all []*float64
	for _, f := range r.Failovers {
		if f.System == system && f.Fault == fault {
			all = append(all, value(f))
		}
	}
	return all
}

// Gap summarizes the time without a leader.
func (r *Results) Gap(system, fault string) Stats {
	return Summarize(r.Select(system, fault, func(f Failover) *float64 { return f.Gap }))
}
