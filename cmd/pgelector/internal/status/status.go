// Package status reads from the server who leads the elections of a database, who is the
// deputy and who waits.
//
// The server knows keys and sessions, not names, terms or tokens. Names come from the caller, and
// names and tokens from a roster ([Snapshot.Add]). A session publishes its lease, and the start of its term, as locks. A
// session of many elections publishes only its lease; other programs publish neither.
// Followers that are not the deputy and do not wait do not appear. Other programs' advisory
// locks with a 64-bit key look like elections.
package status

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
)

// Snapshot is the server's answer at one moment.
type Snapshot struct {
	At        time.Time  `json:"at"`
	Elections []Election `json:"elections"`
	Cut       bool       `json:"cut,omitempty"` // there are more

	asked    bool // the caller named the elections
	recorded bool // a roster was read
}

// Election is one key with its leader, its deputy and other waiters.
type Election struct {
	Name    string      `json:"name,omitempty"`         // if the caller gave it, or a roster knows it
	Key     int64       `json:"key,string"`             // a string: JavaScript's numbers lose digits
	Leader  *Candidate  `json:"leader"`                 // null if nobody leads
	Deputy  *Candidate  `json:"deputy"`                 // null if nobody is the deputy
	Token   int64       `json:"token,string,omitempty"` // of the leader's term, if a roster knows it
	Waiting []Candidate `json:"waiting"`                // others, in the order of the queue

	Published []Published `json:"published,omitempty"` // the candidates that have not left, if a roster was read

	Blockers []string `json:"blockers,omitempty"` // while nobody leads: who keeps the lock from all candidates, and how to end that
}

// Candidate is a session that leads, is the deputy or waits, as far as this role may see it.
type Candidate struct {
	ID           string     `json:"candidate"`
	PID          int32      `json:"pid"`
	User         string     `json:"user"`
	Address      string     `json:"address,omitempty"`
	SessionSince *time.Time `json:"session_at,omitempty"`
	LeadingSince *time.Time `json:"elected_at,omitempty"` // of a leader; null on a shared session
	LeaseMillis  int64      `json:"lease_ms,omitempty"`
	Priority     int32      `json:"priority,omitempty"`         // of a leader that has one
	Scope        string     `json:"scope,omitempty"`            // session or transaction
	LeaseRenewed *time.Time `json:"lease_renewed_at,omitempty"` // by the server's clock; null if there is no lease, or this role may not see it
	LeaseEnds    *time.Time `json:"lease_ends_at,omitempty"`    // unless it is renewed
	Alive        string     `json:"alive,omitempty"`            // by the lease of a leader: yes, no, or cannot tell
	WaitingSince *time.Time `json:"queued_at,omitempty"`

	left time.Duration // of the lease, by the server's clock
}

// Published is what a candidate that has not left says of itself in a roster.
type Published struct {
	Silent         bool              `json:"silent,omitempty"` // it has published nothing for three intervals
	ID             string            `json:"candidate"`
	Version        string            `json:"version,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	At             time.Time         `json:"published_at"`
	Score          *float64          `json:"health,omitempty"`
	Healthy        *bool             `json:"healthy,omitempty"`
	Minimum        *float64          `json:"minimum,omitempty"`
	Why            string            `json:"why,omitempty"`
	HealthMetadata map[string]string `json:"health_metadata,omitempty"`
	CheckedAt      *time.Time        `json:"checked_at,omitempty"`
}

// Look asks the server. It returns the named elections in order, or without names all that
// have a leader or a waiter. It refuses a standby, which does not know its primary's locks.
func Look(ctx context.Context, pool *sql.DB, names ...string) (Snapshot, error) {
	var clock time.Time // the server's
	rows, err := ask.Server(ctx, pool, func(ctx context.Context, q *db.Queries) (all []db.AdvisoryLocksRow, err error) {
		all, clock, err = locks(ctx, q, names)
		return all, err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return Snapshot{}, fmt.Errorf("the server did not answer: %w", context.Cause(ctx))
	case err != nil:
		return Snapshot{}, err
	}
	return Snapshot{At: time.Now().UTC(), Elections: arrange(rows, names, clock), Cut: len(rows) >= db.MostRows, asked: len(names) > 0}, nil
}

func locks(ctx context.Context, q *db.Queries, names []string) (all []db.AdvisoryLocksRow, clock time.Time, err error) {
	ping, err := q.Ping(ctx)
	if err != nil {
		return nil, clock, err
	}
	if ping.InRecovery {
		return nil, clock, elector.ErrServerReadOnly
	}
	var keys []int64
	for _, name := range names {
		keys = append(keys, elector.KeyFromName(name))
	}
	if all, err = q.AdvisoryLocks(ctx, db.Keys(keys...)); err != nil {
		return nil, clock, err
	}
	micros, err := q.Clock(ctx)
	return all, db.Time(micros), err
}

// arrange groups rows, sorted by key, by election.
func arrange(rows []db.AdvisoryLocksRow, names []string, clock time.Time) []Election {
	found := make([]Election, 0, len(names))
	place := make(map[int64]int)
	for _, name := range names {
		key := elector.KeyFromName(name)
		if _, known := place[key]; !known {
			place[key] = len(found)
			found = append(found, Election{Name: name, Key: key, Waiting: []Candidate{}})
		}
	}
	for _, row := range rows {
		i, known := place[row.Key]
		if !known && len(names) > 0 {
			continue
		}
		if !known {
			i = len(found)
			place[row.Key] = i
			found = append(found, Election{Key: row.Key, Waiting: []Candidate{}})
		}
		c := Candidate{ID: row.ApplicationName, PID: row.Pid, User: row.Usename, Address: row.ClientAddr,
			SessionSince: timeOf(row.ConnectedMicros), LeadingSince: timeOf(row.SinceMicros), LeaseMillis: row.LeaseMillis, Priority: row.Priority}
		c.WaitingSince = timeOf(row.WaitingMicros)
		switch {
		case row.InTransaction:
			c.Scope = "transaction"
		case row.LeaseMillis != 0:
			c.Scope = "session"
		}
		switch e := &found[i]; {
		case row.Blocks != "":
			e.Blockers = append(e.Blockers, db.Blocker(row.Pid, row.ApplicationName, row.Usename, row.Blocks, row.Prepared))
		case row.Granted:
			c.live(row, clock)
			e.Leader = &c
		case row.Deputy && e.Deputy == nil:
			e.Deputy = &c
		default:
			e.Waiting = append(e.Waiting, c)
		}
	}
	return found
}

// live tells of a leader's lease by the last statement of its session.
func (c *Candidate) live(row db.AdvisoryLocksRow, clock time.Time) {
	c.Alive = "cannot tell"
	if row.LastMicros == 0 || row.LeaseMillis == 0 {
		return
	}
	c.LeaseRenewed, c.LeaseEnds = timeOf(row.LastMicros), timeOf(row.LastMicros+row.LeaseMillis*1000)
	c.Alive = "no"
	if c.left = c.LeaseEnds.Sub(clock); c.left > 0 {
		c.Alive = "yes"
	}
}

// IsSilent reports whether the lease of a leader has run out so long ago that the server should have ended its session.
func (c *Candidate) IsSilent() bool { return c.Alive == "no" && c.left < -2*time.Second }

// untracked reports whether no role can see when a leader was last heard of: its session does not track its activity.
func (c *Candidate) untracked() bool {
	return c.SessionSince != nil && c.LeaseMillis != 0 && c.LeaseRenewed == nil
}

func timeOf(micros int64) *time.Time {
	if micros == 0 {
		return nil
	}
	utc := db.Time(micros).UTC()
	return &utc
}

// WriteJSON writes the snapshot as JSON.
func (s Snapshot) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}
