package status

import (
	"cmp"
	"context"
	"slices"

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
		if t := current[e.Key]; e.Leader != nil && t.CandidateID == e.Leader.ID {
			e.Token = t.Token
		}
	}
	if s.asked {
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
