package health

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// Status is the status of an election, or of a report: the worst of its elections.
type Status string

// The statuses, from best to worst. The package documentation defines them.
const (
	Healthy   Status = "healthy"
	Degraded  Status = "degraded"
	Unhealthy Status = "unhealthy"
)

// Report is the answer of the handlers.
type Report struct {
	Status    Status     `json:"status"`        // the worst of the elections; healthy if there are none
	Why       string     `json:"why,omitempty"` // why the status is unhealthy although no election is
	Elections []Election `json:"elections"`     // the elections that this process leads come first
}

// Election is one election as this process sees it.
type Election struct {
	Election    string     `json:"election"`
	CandidateID string     `json:"candidate"` // the id of this process's candidate
	Status      Status     `json:"status"`
	Leading     bool       `json:"leading"`         // whether this process leads
	Leader      string     `json:"leader"`          // the id of the leader; "" if nobody leads or it is unknown
	Score       *float64   `json:"score,omitempty"` // of the candidate's last check (elector.WithHealth); nil before the first, and without a check
	Why         string     `json:"why,omitempty"`   // why the status is not healthy
	Asked       *time.Time `json:"asked,omitempty"` // when the server answered; nil if it was not asked, or did not answer

	silent bool // unhealthy only because the leader is silent
}

// Check reports the status of all elections. It asks the server, unless this process
// leads them all or the cached answer is recent. It waits no longer than the timeout. If
// ctx ends first, the elections that this process follows are unhealthy.
func (m *Monitor) Check(ctx context.Context) Report {
	r := Report{Status: Healthy, Elections: []Election{}}
	electors, told := m.all()
	if !told {
		r.Status, r.Why = Unhealthy, "no elector was added: call Monitor.Add"
	}
	var followed []*elector.Elector
	for _, e := range electors {
		if e.IsLeader() {
			r.add(m.judge(e, Election{Status: Healthy, Leading: true, Leader: e.CandidateID()}))
		} else {
			followed = append(followed, e)
		}
	}
	if len(followed) > 0 {
		a := m.ask(ctx)
		for _, e := range followed {
			r.add(m.judge(e, a.about(e)))
		}
	}
	return r
}

// CheckLive reports the elections whose work has overrun its term, or that have a hook that does not return, in any order. It
// also reports elections of electors that were not added, such as those of shards. The status is Unhealthy if there is such an
// election. CheckLive does not ask the server.
func (m *Monitor) CheckLive() Report {
	r := Report{Status: Healthy, Elections: []Election{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	for its, overrun := range m.overruns() {
		r.add(Election{Election: its.who.Election, CandidateID: its.who.CandidateID, Status: Unhealthy, Why: overrun.Err.Error()})
	}
	return r
}

// ready is the report that decides whether this process is ready. A silent leader in another process makes this process no less ready.
func (r Report) ready() Report {
	ready := Report{Status: Healthy, Why: r.Why, Elections: []Election{}}
	if r.Why != "" {
		ready.Status = Unhealthy
	}
	for _, e := range r.Elections {
		if e.silent {
			e.Status = Degraded
		}
		ready.add(e)
	}
	return ready
}

func (r *Report) add(e Election) {
	rank := []Status{Healthy, Degraded, Unhealthy}
	if slices.Index(rank, e.Status) > slices.Index(rank, r.Status) {
		r.Status = e.Status
	}
	r.Elections = append(r.Elections, e)
}

// judge adds what is known of this process's candidate to seen, which says who leads.
func (m *Monitor) judge(e *elector.Elector, seen Election) Election {
	seen.Election, seen.CandidateID = e.Election(), e.CandidateID()
	overrun, gaveUp := m.failures(e)
	check := e.Health()
	if !check.At.IsZero() {
		seen.Score = &check.Score
	}
	ofLeader := seen.Why
	switch {
	case overrun != nil:
		seen.Status, seen.Why = Unhealthy, overrun.Error()
	case gaveUp != nil:
		seen.Status, seen.Why = Unhealthy, fmt.Sprintf("this candidate gave up: %v", gaveUp)
	case check.Current && !check.At.IsZero() && !check.Healthy:
		seen.Status, seen.Why = Unhealthy, "this candidate is unhealthy"
		if check.Err != nil {
			text, _, _ := strings.Cut(check.Err.Error(), "\n") // without the stack of a panic
			seen.Why += ": " + text
		}
	}
	seen.silent = seen.silent && seen.Why == ofLeader
	return seen
}

// silentFor is how long the lease of a leader must have run out: a busy server ends a session late.
const silentFor = 2 * time.Second

// about says who leads an election that this process follows.
func (a *answer) about(e *elector.Elector) Election {
	var seen Election
	if a.err == nil {
		at := a.at.UTC()
		seen.Asked = &at
	}
	row, held := a.leaders[e.Key()]
	switch {
	case a.err != nil:
		seen.Status, seen.Why = Unhealthy, fmt.Sprintf("the leader is unknown: %v", a.err)
	case !held:
		seen.Status, seen.Why = Degraded, "nobody leads"
	case row.ApplicationName == e.CandidateID():
		seen.Status, seen.Why = Degraded, "nobody leads: the lock is still held for this candidate's last term"
	case row.OverdueMillis > silentFor.Milliseconds():
		seen.Status, seen.silent = Unhealthy, true
		seen.Why = fmt.Sprintf("nobody leads: the lease of %q (backend %d) ran out %v ago, and the server has not ended its session: see docs/runbook.md#leader-is-silent",
			row.ApplicationName, row.Pid, (time.Duration(row.OverdueMillis) * time.Millisecond).Round(time.Second))
	default:
		seen.Status, seen.Leader = Healthy, row.ApplicationName
	}
	return seen
}

// failures returns what the hooks reported of a candidate.
func (m *Monitor) failures(e *elector.Elector) (overrun, gaveUp error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, who := m.overruns(), originOf(e)
	return cmp.Or(all[task{who, hooks.OpWork}].Err, all[task{who, hooks.OpHook}].Err), m.gaveUp[who]
}

// originOf returns the origin of an elector's events.
func originOf(e *elector.Elector) hooks.Origin {
	return hooks.Origin{Election: e.Election(), Key: e.Key(), CandidateID: e.CandidateID()}
}

// ServeHTTP answers 503 if an election is unhealthy, the code of [WithDegradedCode] if one
// is degraded, and 200 otherwise.
func (m *Monitor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	report := m.Check(r.Context())
	code := http.StatusOK
	switch report.Status {
	case Unhealthy:
		code = http.StatusServiceUnavailable
	case Degraded:
		code = m.degradedCode
	}
	answerWith(w, code, report)
}

// Readiness returns a handler that answers 503 if an election is unhealthy, and 200
// otherwise, even while nobody leads: an election whose leader is silent is degraded there.
func (m *Monitor) Readiness() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerUnlessUnhealthy(w, m.Check(r.Context()).ready())
	})
}

// Liveness returns a handler that answers 503 while work of this process has overrun its
// term (elector.ErrOverrun), or a hook has taken as long, and not returned, and 200 otherwise.
// It does not ask the server.
func (m *Monitor) Liveness() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answerUnlessUnhealthy(w, m.CheckLive())
	})
}

func answerUnlessUnhealthy(w http.ResponseWriter, report Report) {
	code := http.StatusOK
	if report.Status == Unhealthy {
		code = http.StatusServiceUnavailable
	}
	answerWith(w, code, report)
}

func answerWith(w http.ResponseWriter, code int, report Report) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(report) // the client may be gone
}
