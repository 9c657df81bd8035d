package status

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
	"github.com/pgelector/pgelector/roster"
)

// Add adds what a roster knows: names, the tokens of current terms, and, unless elections were
// named, those that have candidates and nobody leads. Elections with a name come first.
func (s *Snapshot) Add(ctx context.Context, r *roster.Roster) error {
	var keys []int64 // all, unless elections were named
	if s.asked {
		for _, e := range s.Elections {
			keys = append(keys, e.Key)
		}
	}
	type records struct {
		candidates []roster.Candidate
		terms      []roster.Term
	}
	known, err := ask.Await(ctx, func(ctx context.Context) (all records, err error) { // a driver may not return
		if all.candidates, err = r.Candidates(ctx, keys...); err == nil {
			all.terms, err = r.Terms(ctx, 1, keys...)
		}
		return all, err
	})
	if err == nil {
		s.tell(known.candidates, known.terms)
	}
	return err
}

func (s *Snapshot) tell(candidates []roster.Candidate, terms []roster.Term) {
	s.recorded = true
	names, current := map[int64]string{}, map[int64]roster.Term{}
	for _, c := range candidates {
		names[c.Key] = c.Election
	}
	for _, t := range terms {
		names[t.Key] = cmp.Or(names[t.Key], t.Election)
		if t.Reason == "" {
			current[t.Key] = t
		}
	}
	known := map[int64]bool{}
	for i := range s.Elections {
		e := &s.Elections[i]
		known[e.Key] = true
		e.Name = cmp.Or(e.Name, names[e.Key])
		if t := current[e.Key]; e.Leader != nil && t.CandidateID == e.Leader.ID && !e.Leader.began().After(t.ElectedAt) { // else of an earlier session of that name
			e.Token = t.Token
		}
	}
	defer s.publish(candidates)
	if s.asked || s.Cut {
		return
	}
	for _, c := range candidates {
		if c.State == roster.Live && !known[c.Key] {
			known[c.Key] = true
			s.Elections = append(s.Elections, Election{Name: c.Election, Key: c.Key, Waiting: []Candidate{}})
		}
	}
	slices.SortStableFunc(s.Elections, func(a, b Election) int {
		if (a.Name == "") != (b.Name == "") {
			return cmp.Compare(b.Name, a.Name)
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

// began is when the candidate began to lead, or its session began, if that is known.
func (c *Candidate) began() time.Time {
	switch {
	case c.LeadingSince != nil:
		return *c.LeadingSince
	case c.SessionSince != nil:
		return *c.SessionSince
	}
	return time.Time{}
}

// publish adds what the candidates that have not left say of themselves.
func (s *Snapshot) publish(candidates []roster.Candidate) {
	of := map[int64][]Published{}
	for _, c := range candidates {
		if c.State == roster.Left {
			continue
		}
		p := Published{Silent: c.State == roster.Silent, ID: c.CandidateID, Version: c.Version, Metadata: c.Metadata, At: c.PublishedAt.UTC(),
			Score: c.Health, Healthy: c.IsHealthy, Minimum: c.Minimum, Why: c.Why, HealthMetadata: c.HealthMetadata}
		if !c.CheckedAt.IsZero() {
			at := c.CheckedAt.UTC()
			p.CheckedAt = &at
		}
		of[c.Key] = append(of[c.Key], p)
	}
	for i := range s.Elections {
		s.Elections[i].Published = of[s.Elections[i].Key]
	}
}

// health is what a roster says of the candidate's health: its score, that it is unhealthy, and why.
func (e Election) health(id string) string {
	for _, p := range e.Published {
		if p.ID != id || p.Score == nil {
			continue
		}
		text := strconv.FormatFloat(*p.Score, 'g', 3, 64)
		if p.Healthy != nil && !*p.Healthy {
			text += ", unhealthy"
		}
		if p.Why != "" {
			text += ": " + Shown(p.Why)
		}
		return text
	}
	return ""
}

// followers are the published candidates that the server does not show.
func (e Election) followers() (all []Published) {
	shown := map[string]bool{}
	for _, c := range append([]Candidate{}, e.Waiting...) {
		shown[c.ID] = true
	}
	for _, c := range []*Candidate{e.Leader, e.Deputy} {
		if c != nil {
			shown[c.ID] = true
		}
	}
	for _, p := range e.Published {
		if !shown[p.ID] {
			all = append(all, p)
		}
	}
	return all
}
