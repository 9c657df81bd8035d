// Package results is what one run has measured.
package results

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"time"
)

// Results is one run.
type Results struct {
	Command   string
	Date      time.Time
	Took      time.Duration
	Quick     bool
	Facts     []Fact
	Systems   []System
	Failovers []Failover
	Rest      []Rest
	Growth    []Growth
	InProcess []InProcess
}

// Fact is one line about the machine.
type Fact struct{ Name, Value string }

// System is a system as it was configured, and what it could not be asked.
type System struct {
	Name, Settings, For, Blind string
	Cannot, Never              map[string]string
}

// Failover is one leader lost. Times are in milliseconds; nil means not within Cap.
type Failover struct {
	System, Fault string
	Gap           *float64 // from the fault to the start of the next leader's work
	Stale         *float64 // from the fault to the end of the old leader's belief
	Overlap       *float64 // how much longer the old one believed than the next one did not yet work: two at a time
	Cap           float64
	Blind         bool // the old leader's belief never ends: Stale and Overlap have no end
}

// Rest is what one candidate costs while nothing happens.
type Rest struct {
	System, Role string
	Elections    int
	Seconds      float64
	Statements   float64 // per second; -1: not counted
	ServerCPU    float64 // milliseconds per second
	ClientCPU    float64
	RSS          float64 // MiB, of the candidate's process
	Connections  float64
	WAL          float64 // bytes per hour, of leader and follower together
}

// Growth is one size of one system.
type Growth struct {
	System                string
	Elections, Candidates int
	Leader, Follower      Rest
	ServerRSS             float64  // MiB, of the backends of all candidates, shared memory not counted
	FirstMs, AllMs        *float64 // from kill -9 of the leader until the first, and all, elections are led anew
	Error                 string
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

// Load reads what Save wrote.
func Load(file string) (*Results, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Results{}
	return r, json.Unmarshal(text, r)
}

// Save writes r as JSON.
func (r *Results) Save(file string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// Stats are the order statistics of a cell.
type Stats struct {
	N, Missing       int // Missing: nothing happened within the cap
	Median, P99, Max float64
}

// Summarize counts what is missing as infinite.
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

// quantile is the nearest rank.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Select returns one value of each failover of a cell.
func (r *Results) Select(system, fault string, value func(Failover) *float64) []*float64 {
	var all []*float64
	for _, f := range r.Failovers {
		if f.System == system && f.Fault == fault {
			all = append(all, value(f))
		}
	}
	return all
}

// Gap is the statistics of a cell's time without a leader.
func (r *Results) Gap(system, fault string) Stats {
	return Summarize(r.Select(system, fault, func(f Failover) *float64 { return f.Gap }))
}
