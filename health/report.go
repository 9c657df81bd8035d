package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// Status is how an election is. The worst is that of a report.
type Status string

// The states of an election; the package's documentation says when it is in which.
const (
	Healthy   Status = "healthy"
	Degraded  Status = "degraded"
	Unhealthy Status = "unhealthy"
)

// Report is what the handlers answer.
type Report struct {
	Status    Status     `json:"status"`    // the worst of the elections; healthy if there is none
	Elections []Election `json:"elections"` // those that this process leads come first
}

// Election is how one election is, as this process sees it.
type Election struct {
	Election  string     `json:"election"`
	Candidate string     `json:"candidate"` // the id of this process's candidate
	Status    Status     `json:"status"`
	Leading   bool       `json:"leading"`         // this process leads
	Leader    string     `json:"leader"`          // the id of the candidate that leads; "" if nobody does, or it is not known
	Why       string     `json:"why,omitempty"`   // in words, unless healthy
	Asked     *time.Time `json:"asked,omitempty"` // when the server answered; not there if it was not asked
}

// Check returns how the elections are. It asks the server unless this process
// leads them all or the last answer is good still, waits no longer than the
// timeout, and if ctx ends before, the elections that it follows are unhealthy.
func (m *Monitor) Check(ctx context.Context) Report {
	m.mu.Lock()
	electors := slices.Clone(m.electors)
	m.mu.Unlock()
	r := Report{Status: Healthy, Elections: []Election{}}
	var followed []*elector.Elector
	for _, e := range electors {
		if e.IsLeader() {
			r.add(Election{Election: e.Election(), Candidate: e.CandidateID(), Status: Healthy, Leading: true, Leader: e.CandidateID()})
		} else {
			followed = append(followed, e)
		}
	}
	if len(followed) > 0 {
		told := m.ask(ctx)
		for _, e := range followed {
			r.add(m.judge(e, told))
		}
	}
	return r
}

// CheckLive returns the elections whose work overran its term, and is unhealthy if
// there is one. It asks the server nothing.
func (m *Monitor) CheckLive() Report {
	m.mu.Lock()
	electors := slices.Clone(m.electors)
	m.mu.Unlock()
	r := Report{Status: Healthy, Elections: []Election{}}
	for _, e := range electors {
		if overran, _ := m.trouble(e); overran != nil {
			r.add(Election{Election: e.Election(), Candidate: e.CandidateID(), Status: Unhealthy, Why: overran.Error()})
		}
	}
	return r
}

func (r *Report) add(e Election) {
	rank := []Status{Healthy, Degraded, Unhealthy}
	if slices.Index(rank, e.Status) > slices.Index(rank, r.Status) {
		r.Status = e.Status
	}
	r.Elections = append(r.Elections, e)
}

// judge says how an election is that this process does not lead.
func (m *Monitor) judge(e *elector.Elector, told *answer) Election {
	overran, retired := m.trouble(e)
	status, leader, why := verdict(e.CandidateID(), e.Key(), told)
	switch {
	case overran != nil:
		status, why = Unhealthy, overran
	case retired != nil:
		status, why = Unhealthy, fmt.Errorf("this candidate takes no part any more: %w", retired)
	}
	seen := Election{Election: e.Election(), Candidate: e.CandidateID(), Status: status, Leader: leader}
	if why != nil {
		seen.Why = why.Error()
	}
	if !told.at.IsZero() {
		at := told.at.UTC()
		seen.Asked = &at
	}
	return seen
}

// verdict is what the server's answer means for a candidate that follows.
func verdict(candidate string, key int64, told *answer) (status Status, leader string, why error) {
	row, held := told.leaders[key]
	switch {
	case told.err != nil:
		return Unhealthy, "", fmt.Errorf("who leads cannot be told: %w", told.err)
	case !held:
		return Degraded, "", errors.New("nobody leads")
	case row.ApplicationName == candidate:
		return Degraded, "", errors.New("nobody leads: the lock is still held for the last term of this candidate")
	}
	return Healthy, row.ApplicationName, nil
}

// trouble is what the hooks have told of a candidate.
func (m *Monitor) trouble(e *elector.Elector) (overran, retired error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.overrun[originOf(e)], m.retired[originOf(e)]
}

// originOf is how the hooks' events name a candidate.
func originOf(e *elector.Elector) hooks.Origin {
	return hooks.Origin{Election: e.Election(), Key: e.Key(), CandidateID: e.CandidateID()}
}
