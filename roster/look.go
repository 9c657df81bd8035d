package roster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/roster/internal/db"
)

// Candidate is what one candidate told of itself. Times are of the server's clock.
type Candidate struct {
	Election    string
	Key         int64 // of the election's advisory lock
	ID          string
	State       State
	Leading     bool // as pg_locks shows, not as it told
	Version     string
	Health      *float64 // nil if unknown
	Metadata    map[string]string
	Since       time.Time // published without a break since then
	PublishedAt time.Time
}

// State is whether a candidate still takes part.
type State string

// The states of a candidate.
const (
	Live   State = "live"   // published within the last three of its intervals
	Silent State = "silent" // it has stopped to publish, and did not say why
	Left   State = "left"   // it said that it leaves
)

// Term is what is recorded of one term. Times are of the server's clock.
type Term struct {
	Election    string
	Key         int64
	Token       int64
	CandidateID string
	ElectedAt   time.Time
	EndedAt     time.Time // zero while it goes on, or if nobody knows: then Reason tells
	Reason      string    // why it ended: one of hooks.Reasons, or Lost; "" while it goes on
	Err         string    // the cause of its end, in words; "" if there is none
}

// Lost is the reason of a term whose candidate did not tell of its end: it was
// killed, or could not write. Such a term has ended before the next one began.
const Lost = "lost"

// Candidates tells the candidates of the elections with these keys
// (elector.Elector.Key, elector.KeyFromName), or of all: by election, the leader
// first, then the live ones. Those that left, or have been silent, stay for a day.
// Ask the primary: a standby knows nothing of the locks, so nobody would lead.
func (r *Roster) Candidates(ctx context.Context, keys ...int64) ([]Candidate, error) {
	rows, err := r.queries(r.pool).Candidates(ctx, encodeKeys(keys))
	if err != nil {
		return nil, explain("ask for the candidates", err)
	}
	all := make([]Candidate, len(rows))
	for i, row := range rows {
		all[i] = Candidate{Election: row.Election, Key: row.Key, ID: row.CandidateID, Leading: row.Leads,
			Version: row.Version, Since: time.UnixMicro(row.SinceMicros), PublishedAt: time.UnixMicro(row.PublishedMicros)}
		switch {
		case row.LeftMicros != 0:
			all[i].State = Left
		case row.Live:
			all[i].State = Live
		default:
			all[i].State = Silent
		}
		if row.Health.Valid {
			all[i].Health = &row.Health.Float64
		}
		if err := json.Unmarshal([]byte(row.Metadata), &all[i].Metadata); err != nil {
			return nil, fmt.Errorf("roster: the metadata of %q: %w", row.CandidateID, err)
		}
	}
	return all, nil
}

// Terms tells the newest terms, so many of each election at the most, of the
// elections with these keys, or of all: by election, the newest first. Ask the
// primary, as for Candidates.
func (r *Roster) Terms(ctx context.Context, atMost int, keys ...int64) ([]Term, error) {
	rows, err := r.queries(r.pool).Terms(ctx, db.TermsParams{Keys: encodeKeys(keys), AtMost: int64(max(atMost, 0))})
	if err != nil {
		return nil, explain("ask for the terms", err)
	}
	all := make([]Term, len(rows))
	for i, row := range rows {
		all[i] = Term{Election: row.Election, Key: row.Key, Token: row.Token, CandidateID: row.CandidateID,
			ElectedAt: time.UnixMicro(row.ElectedMicros), Reason: row.Reason, Err: row.Error}
		if row.EndedMicros != 0 {
			all[i].EndedAt = time.UnixMicro(row.EndedMicros)
		}
	}
	return all, nil
}

const (
	forgetAfter = 24 * time.Hour // a candidate that is silent, or has left
	maxRemoved  = 1000           // rows of each table, by one clean-up
)

// CleanUp removes what WithRetention does not keep, and candidates that left or
// fell silent a day ago: at most 1000 rows of each table, and it tells how many.
// Each roster whose candidate leads does so once per hour by itself; call it for
// more than that. Several at once do not wait for each other.
func (r *Roster) CleanUp(ctx context.Context) (removed int64, err error) {
	q := r.queries(r.pool)
	candidates, err := q.RemoveCandidates(ctx, db.RemoveCandidatesParams{AgeSeconds: int64(forgetAfter.Seconds()), AtMost: maxRemoved})
	if err != nil {
		return 0, explain("remove old candidates", err)
	}
	terms, err := q.RemoveTerms(ctx, db.RemoveTermsParams{AgeSeconds: int64(r.age.Seconds()), Keep: int64(r.keep), AtMost: maxRemoved})
	return candidates + terms, explain("remove old terms", err)
}

func encodeKeys(keys []int64) string {
	if len(keys) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(keys) // integers always have a text
	return string(text)
}
