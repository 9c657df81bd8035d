package roster

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/roster/internal/db"
)

// Candidate is what one candidate published. Times are the server's.
type Candidate struct {
	Election    string
	Key         int64 // of the election's advisory lock
	CandidateID string
	State       State
	Leading     bool // by pg_locks
	Deputy      bool // by pg_locks: it leads when the leader is gone
	Version     string
	Metadata    map[string]string

	// Of its last check or report (elector.WithHealth, elector.Elector.ReportHealth).
	Health         *float64 // the score; nil if unknown
	IsHealthy      *bool    // whether its health lets it lead; nil if unknown
	Minimum        *float64 // the lowest good score; nil if unknown
	Why            string
	HealthMetadata map[string]string
	CheckedAt      time.Time // zero if unknown

	JoinedAt    time.Time // published without a gap since then
	PublishedAt time.Time
	NextBy      time.Time // it publishes again by then, unless it is gone, frozen or cut off
}

// State says whether a candidate still takes part.
type State string

// The states of a candidate.
const (
	Live   State = "live"   // published within the last three of its intervals
	Silent State = "silent" // stopped publishing without leaving
	Left   State = "left"   // stopped in order
)

// Term is the record of one term. Times are the server's.
type Term struct {
	Election    string
	Key         int64
	Token       int64
	CandidateID string
	ElectedAt   time.Time
	EndedAt     time.Time // zero while it goes on (Reason is ""), or if unknown (Reason is Lost)
	Reason      string    // why it ended: one of hooks.Reasons, or Lost; "" while it goes on
	Err         string    // the text of the cause; "" if there is none
}

// Lost is the reason of a term whose candidate did not record its end: it was killed, or
// could not write. Such a term ended before the next one began.
const Lost = "lost"

// Candidates returns the candidates of the elections with these keys
// (elector.Elector.Key, elector.KeyFromName), or of all elections: by election, the leader
// first, then the deputy, then the live ones. Silent candidates and those that left stay for a day. Ask the
// primary: a standby does not know the locks, and would show no leader. Rows that a policy of row level
// security hides from this role are missing.
func (r *Roster) Candidates(ctx context.Context, keys ...int64) ([]Candidate, error) {
	rows, err := ask(ctx, r.config, r.pool, func(q *db.Queries) ([]db.CandidatesRow, error) { return q.Candidates(ctx, encodeKeys(keys)) })
	if err != nil {
		return nil, explain("read the candidates", err)
	}
	all := make([]Candidate, len(rows))
	for i, row := range rows {
		all[i] = Candidate{Election: row.Election, Key: row.Key, CandidateID: row.CandidateID, Leading: row.Leads, Deputy: row.Deputy,
			Version: row.Version, JoinedAt: time.UnixMicro(row.SinceMicros), PublishedAt: time.UnixMicro(row.PublishedMicros)}
		if all[i].Why = row.Why; row.CheckedMicros != 0 {
			all[i].CheckedAt = time.UnixMicro(row.CheckedMicros)
		}
		if row.Healthy.Valid {
			all[i].IsHealthy = &row.Healthy.Bool
		}
		if row.Minimum.Valid {
			all[i].Minimum = &row.Minimum.Float64
		}
		all[i].NextBy = all[i].PublishedAt.Add(longest(time.Duration(row.ExpiresMillis)*time.Millisecond/silentAfter) + writeSlack)
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
		if err := json.Unmarshal([]byte(row.HealthMetadata), &all[i].HealthMetadata); err != nil {
			return nil, fmt.Errorf("roster: the metadata of the health of %q: %w", row.CandidateID, err)
		}
	}
	return all, nil
}

// Terms returns the newest terms, at most atMost of each election, of the elections with
// these keys, or of all elections: by election, the newest first. Ask the primary, as for
// Candidates.
func (r *Roster) Terms(ctx context.Context, atMost int, keys ...int64) ([]Term, error) {
	rows, err := ask(ctx, r.config, r.pool, func(q *db.Queries) ([]db.TermsRow, error) {
		return q.Terms(ctx, db.TermsParams{Keys: encodeKeys(keys), AtMost: int64(max(atMost, 0))})
	})
	if err != nil {
		return nil, explain("read the terms", err)
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
	maxRemoved = 1000 // rows of each table per CleanUp
)

// ForgetAfter is the time of WithForgetAfter.
func (r *Roster) ForgetAfter() time.Duration { return r.forget }

// CleanUp removes what WithRetention does not keep, and candidates that left or fell
// silent a day ago (WithForgetAfter): at most 1000 rows of each table. It returns how many rows it removed.
// Each roster whose candidate leads calls it once an hour. Concurrent calls do not wait
// for each other.
func (r *Roster) CleanUp(ctx context.Context) (removed int64, err error) {
	var candidates, terms int64
	err = tell(ctx, r.config, r.pool, func(q *db.Queries) (err error) {
		candidates, err = q.RemoveCandidates(ctx, db.RemoveCandidatesParams{AgeSeconds: int64(r.forget.Seconds()), AtMost: maxRemoved})
		return err
	})
	if err != nil {
		return 0, explain("remove old candidates", err)
	}
	err = tell(ctx, r.config, r.pool, func(q *db.Queries) (err error) {
		terms, err = q.RemoveTerms(ctx, db.RemoveTermsParams{AgeSeconds: int64(r.age.Seconds()), Keep: int64(r.keep), AtMost: maxRemoved})
		return err
	})
	return candidates + terms, explain("remove old terms", err)
}

func encodeKeys(keys []int64) string {
	if len(keys) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(keys) // integers always marshal
	return string(text)
}

// Leader is who leads an election, and what it published.
type Leader struct {
	Leader    elector.Leader
	Published Candidate // zero if it has published nothing in its term
}

// Observe is the elector's Observe, and carries what the leader published in its term: its
// version, its metadata and its health. It waits for them for a moment, and yields again within some two
// seconds when they change. If they cannot be read, it yields the leader together with the error.
func (r *Roster) Observe(ctx context.Context, e *elector.Elector) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		sends, undo := backoff.Detach(ctx) // as those of the elector's Observe
		defer undo()
		leaders := make(chan sighting)
		go backoff.Apart(func() { sight(sends, e, leaders) })()
		defer func() {
			stop()
			for range leaders { // until it has ended
			}
		}()
		changes := time.NewTicker(changesEvery)
		defer changes.Stop()
		var l Leader
		for {
			var err error
			select {
			case s, more := <-leaders:
				if !more {
					return
				}
				if l, err = (Leader{Leader: s.leader}), s.err; err == nil && s.leader.PID != 0 {
					l.Published, err = r.answered(sends, e, s.leader)
				}
			case <-changes.C:
				if !r.hasChanged(sends, e, &l) {
					continue
				}
			}
			if ctx.Err() != nil || !yield(l, err) {
				return
			}
		}
	}
}

// changesEvery is how often Observe reads what the leader publishes.
const changesEvery = time.Second

// A sighting is what the elector's Observe yields.
type sighting struct {
	leader elector.Leader
	err    error
}

func sight(ctx context.Context, e *elector.Elector, to chan<- sighting) {
	defer close(to)
	for leader, err := range e.Observe(ctx) {
		select {
		case to <- sighting{leader, err}:
		case <-ctx.Done():
			return
		}
	}
}

// hasChanged reports whether the leader has published something else, and puts it into l. What it published
// before it was seen may be of an earlier life.
func (r *Roster) hasChanged(ctx context.Context, e *elector.Elector, l *Leader) bool {
	if l.Leader.PID == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, e.Settings().Lease)
	defer cancel()
	all, err := backoff.Await(ctx, func(ctx context.Context) ([]Candidate, error) { return r.Candidates(ctx, e.Key()) })
	if err != nil {
		return false
	}
	for _, c := range all {
		if c.CandidateID == l.Leader.CandidateID && c.State == Live && !c.PublishedAt.Before(l.Leader.AskedAt) && !c.saysAs(l.Published) {
			l.Published = c
			return true
		}
	}
	return false
}

// saysAs reports whether the candidate says the same as other. Times are no news.
func (c Candidate) saysAs(other Candidate) bool {
	for _, one := range []*Candidate{&c, &other} {
		one.JoinedAt, one.PublishedAt, one.NextBy, one.CheckedAt, one.Leading, one.Deputy = time.Time{}, time.Time{}, time.Time{}, time.Time{}, false, false
	}
	return reflect.DeepEqual(c, other)
}

// answered is published, but waits no longer than a lease, as Elector.Observe does, and not for a
// driver that does not return.
func (r *Roster) answered(ctx context.Context, e *elector.Elector, leader elector.Leader) (Candidate, error) {
	lease := e.Settings().Lease
	ctx, cancel := context.WithTimeoutCause(ctx, lease, fmt.Errorf("roster: no answer within %v: %w", lease, context.DeadlineExceeded))
	defer cancel()
	return backoff.Await(ctx, func(ctx context.Context) (Candidate, error) { return r.published(ctx, e, leader) })
}

// A candidate may be elected before it has published.
const (
	publishedLooks = 4
	publishedEvery = 100 * time.Millisecond
)

// published is what the leader has published in its term, as it does at its beginning. A row
// of before may be of a process that was killed, and had the same id. Through a pooler, or to
// another role, the start of the session does not tell them apart, and only ElectedAt does.
func (r *Roster) published(ctx context.Context, e *elector.Elector, leader elector.Leader) (Candidate, error) {
	for look := 1; ; look++ {
		all, err := r.Candidates(ctx, e.Key())
		if err != nil {
			return Candidate{}, err
		}
		for _, c := range all {
			if c.CandidateID == leader.CandidateID && c.State == Live && !c.PublishedAt.Before(leader.SessionAt) && !c.PublishedAt.Before(leader.ElectedAt) &&
				(look > 1 || !leader.ElectedAt.IsZero()) {
				return c, nil
			}
		}
		if look == publishedLooks {
			return Candidate{}, nil
		}
		select {
		case <-time.After(publishedEvery):
		case <-ctx.Done():
			return Candidate{}, ctx.Err()
		}
		if leader.ElectedAt.IsZero() { // its first moment, or a shared session
			if now, err := e.Leader(ctx); err == nil && now.PID == leader.PID {
				leader.ElectedAt = now.ElectedAt
			}
		}
	}
}
