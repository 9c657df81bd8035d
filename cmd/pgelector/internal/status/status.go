// Package status reads from the server who leads the elections of a database, who is the
// deputy and who waits.
//
// The server knows keys and sessions, not names, terms or tokens. So a name appears only if
// the caller gave it. A session publishes its lease, and the start of its term, as locks. A
// session of many elections publishes only its lease; other programs publish neither.
// Followers that are not the deputy and do not wait do not appear. Other programs' advisory
// locks with a 64-bit key look like elections.
package status

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pooled"
)

// Snapshot is the server's answer at one moment.
type Snapshot struct {
	At        time.Time  `json:"at"`
	Elections []Election `json:"elections"`
	Cut       bool       `json:"cut,omitempty"` // there are more
}

// most is how many rows AdvisoryLocks returns at most.
const most = 10_000

// Election is one key with its leader, its deputy and other waiters.
type Election struct {
	Name    string      `json:"name,omitempty"` // if the caller gave it
	Key     int64       `json:"key,string"`     // a string: JavaScript's numbers lose digits
	Leader  *Candidate  `json:"leader"`         // null if nobody leads
	Deputy  *Candidate  `json:"deputy"`         // null if nobody is the deputy
	Token   *int64      `json:"token,string"`   // null: the server does not know it
	Waiting []Candidate `json:"waiting"`        // others, in the order of the queue

	Blockers []string `json:"blockers,omitempty"` // while nobody leads: who keeps the lock from all candidates, and how to end that
}

// Candidate is a session that leads, is the deputy or waits, as far as this role may see it.
type Candidate struct {
	ID           string     `json:"candidate"`
	PID          int32      `json:"pid"`
	User         string     `json:"user"`
	Address      string     `json:"address,omitempty"`
	SessionSince *time.Time `json:"session_since,omitempty"`
	LeadingSince *time.Time `json:"leading_since,omitempty"` // of a leader; null on a shared session
	LeaseMillis  int64      `json:"lease_ms,omitempty"`
	Scope        string     `json:"scope,omitempty"` // session or transaction
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
}

// Look asks the server. It returns the named elections in order, or without names all that
// have a leader or a waiter. It refuses a standby, which does not know its primary's locks.
func Look(ctx context.Context, pool *sql.DB, names ...string) (Snapshot, error) {
	rows, err := backoff.Await(ctx, func(ctx context.Context) ([]db.AdvisoryLocksRow, error) {
		return pooled.Ask(ctx, pool, func(q db.DBTX) ([]db.AdvisoryLocksRow, error) { return ask(ctx, db.New(q), names) })
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return Snapshot{}, fmt.Errorf("the server did not answer: %w", context.Cause(ctx))
	case err != nil:
		return Snapshot{}, err
	}
	return Snapshot{At: time.Now().UTC(), Elections: arrange(rows, names), Cut: len(rows) >= most}, nil
}

func ask(ctx context.Context, q *db.Queries, names []string) ([]db.AdvisoryLocksRow, error) {
	ping, err := q.Ping(ctx)
	if err != nil {
		return nil, err
	}
	if ping.InRecovery {
		return nil, elector.ErrServerReadOnly
	}
	var keys []int64
	for _, name := range names {
		keys = append(keys, elector.KeyFromName(name))
	}
	return q.AdvisoryLocks(ctx, db.Keys(keys...))
}

// arrange groups rows, sorted by key, by election.
func arrange(rows []db.AdvisoryLocksRow, names []string) []Election {
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
			SessionSince: timeOf(row.ConnectedMicros), LeadingSince: timeOf(row.SinceMicros), LeaseMillis: row.LeaseMillis}
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
			e.Leader = &c
		case row.Deputy && e.Deputy == nil:
			e.Deputy = &c
		default:
			e.Waiting = append(e.Waiting, c)
		}
	}
	return found
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

// WriteTable writes the snapshot as a table. The elections without a name that one session
// leads are one row, unless somebody waits for them.
func (s Snapshot) WriteTable(w io.Writer) error {
	if len(s.Elections) == 0 {
		_, err := fmt.Fprintln(w, "Nobody leads or waits for any election of this database.")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ELECTION\tROLE\tCANDIDATE\tPID\tUSER\tFROM\tLEASE\tSINCE")
	led := map[int32]int{} // by session
	for _, e := range s.Elections {
		if e.isBare() {
			led[e.Leader.PID]++
		}
	}
	for _, e := range s.Elections {
		name := e.title()
		switch {
		case e.isBare() && led[e.Leader.PID] == 0:
			continue
		case e.isBare() && led[e.Leader.PID] > 1:
			name = fmt.Sprintf("%d keys", led[e.Leader.PID])
			led[e.Leader.PID] = 0
		}
		if e.Leader == nil {
			fmt.Fprintf(table, "%s\tnobody leads\t\t\t\t\t\t\n", name)
		} else {
			what, since := "", e.Leader.LeadingSince
			if since == nil {
				what, since = "session ", e.Leader.SessionSince
			}
			row(table, name, "leads", *e.Leader, what, since, s.At)
		}
		if e.Deputy != nil {
			row(table, "", "deputy", *e.Deputy, "session ", e.Deputy.SessionSince, s.At)
		}
		for i, c := range e.Waiting {
			row(table, "", fmt.Sprintf("waits, %d.", i+1), c, "", c.WaitingSince, s.At)
		}
	}
	return table.Flush()
}

func (e Election) title() string {
	return cmp.Or(e.Name, "key "+strconv.FormatInt(e.Key, 10))
}

// isBare reports whether there is nothing to tell of an election but its key and its leader.
func (e Election) isBare() bool {
	return e.Name == "" && e.Leader != nil && e.Deputy == nil && len(e.Waiting) == 0
}

func row(w io.Writer, name, role string, c Candidate, what string, since *time.Time, at time.Time) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", name, role, Shown(c.ID), c.PID, Shown(c.User), Shown(c.Address), c.lease(), ago(what, since, at))
}

// lease is the lease, and its scope unless that is the usual one.
func (c Candidate) lease() string {
	text := "-"
	if c.LeaseMillis != 0 {
		text = (time.Duration(c.LeaseMillis) * time.Millisecond).String()
	}
	if c.Scope == "transaction" {
		text += ", in a transaction"
	}
	return text
}

func ago(what string, since *time.Time, at time.Time) string {
	if since == nil {
		return "-"
	}
	return fmt.Sprintf("%s%s (%v ago)", what, since.Local().Format(time.DateTime), at.Sub(*since).Round(time.Second))
}

// Shown returns a name as people see it. A role may have any name, also one with newlines, that
// looks like lines of its own: one that does not print is quoted.
func Shown(name string) string {
	switch {
	case name == "":
		return "-"
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return strconv.Quote(name)
	}
	return name
}

// Notes explains what the table lacks.
func (s Snapshot) Notes() []string {
	var notes []string
	hidden, unnamed := false, false
	if s.Cut {
		notes = append(notes, "There are more: name the elections to see them.")
	}
	for _, e := range s.Elections {
		for _, blocker := range e.Blockers {
			notes = append(notes, fmt.Sprintf("Nobody leads %s: %s.", e.title(), blocker))
		}
		hidden = hidden || e.Leader != nil && e.Leader.SessionSince == nil
		unnamed = unnamed || e.Name == ""
	}
	if unnamed {
		notes = append(notes, "The server knows keys, not names: give names to see them, or compare with \"pgelector key NAME\".",
			"Advisory locks of other programs with a 64-bit key also show here.")
	}
	if hidden {
		notes = append(notes, "This role may not see addresses and times: GRANT pg_read_all_stats.")
	}
	return append(notes, "The other followers hold nothing in the server, and do not show. The token is known to the leader only.")
}
