package status

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
)

// Change is one line of a watch.
type Change struct {
	At       time.Time  `json:"at"`
	Election string     `json:"election"`
	Event    Event      `json:"event"`
	Leader   *Candidate `json:"leader,omitempty"`
	Deputy   *Candidate `json:"deputy,omitempty"`
	Previous string     `json:"previous,omitempty"` // the candidate that led before
	Error    string     `json:"error,omitempty"`
}

// Event is the kind of a change.
type Event string

// The events of a watch.
const (
	Leads       Event = "leads"       // another session leads than before
	Deputy      Event = "deputy"      // another session is the deputy than before, or nobody
	Vacant      Event = "vacant"      // nobody leads
	Unreachable Event = "unreachable" // the leader is unknown
)

// naming is how long a watch waits for a new leader's name. A candidate takes the lock, then its
// name, and then tells its lease. A stranger tells none.
const naming = time.Second

// Watch watches an election.
type Watch struct {
	Election string
	Interval time.Duration
	Timeout  time.Duration // of one question
	Report   func(Change) error
}

// Run reports the state, and then each change, until ctx ends. It misses a leader that came
// and went between two questions. It returns the error of the first question if it is
// permanent.
func (w Watch) Run(ctx context.Context, pool *sql.DB, permanent func(error) bool) error {
	var last, begun Change // begun is the first with the leader's session
	ticker := time.NewTicker(w.Interval)
	defer ticker.Stop()
	for first := true; ; {
		change, err := w.look(ctx, pool)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && first && permanent(err):
			return err
		}
		if begun.Leader == nil || change.Leader == nil || begun.Leader.PID != change.Leader.PID {
			begun = change
		}
		if change.Leader == nil || change.Leader.LeaseMillis != 0 || change.At.Sub(begun.At) >= naming {
			if reported, changed := change.since(last); first || changed {
				if err := w.Report(reported); err != nil {
					return err
				}
			}
			if change.Event == Unreachable {
				change.Leader, change.Deputy = last.Leader, last.Deputy // to compare the next answer with
			}
			last, first = change, false
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w Watch) look(ctx context.Context, pool *sql.DB) (Change, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.Timeout, fmt.Errorf("no answer within %v", w.Timeout))
	defer cancel()
	change := Change{At: time.Now().UTC(), Election: w.Election, Event: Vacant}
	snapshot, err := Look(ctx, pool, w.Election)
	switch {
	case errors.Is(err, elector.ErrServerReadOnly):
		change.Event, change.Error = Unreachable, "the server is a standby, which does not know its primary's locks"
	case err != nil:
		change.Event, change.Error = Unreachable, err.Error()
	case snapshot.Elections[0].Leader != nil:
		change.Event, change.Leader, change.Deputy = Leads, snapshot.Elections[0].Leader, snapshot.Elections[0].Deputy
	}
	return change, err
}

// since returns what to report of a state after the last one, and whether it is news.
func (c Change) since(last Change) (Change, bool) {
	switch {
	case c.Event == Unreachable:
		return c, last.Event != Unreachable
	case c.Event == Leads && last.Event == Leads && same(c.Leader, last.Leader):
		c.Event = Deputy
		return c, !same(c.Deputy, last.Deputy)
	case last.Leader != nil && !same(c.Leader, last.Leader): // it may be the same after an outage
		c.Previous = last.Leader.ID
	}
	return c, c.Event != Vacant || last.Event != Vacant
}

// same compares sessions, not only ids: a candidate that lost and leads again is a change.
func same(a, b *Candidate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ID == b.ID && a.PID == b.PID
}

// WriteJSON writes the change as one line.
func (c Change) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(c) }

// WriteLine writes the change as text.
func (c Change) WriteLine(w io.Writer) error {
	text := "nobody leads"
	switch {
	case c.Event == Unreachable:
		text = "leader unknown: " + strings.Join(strings.Fields(c.Error), " ") // on one line
	case c.Event == Deputy && c.Deputy == nil:
		text = "nobody is the deputy"
	case c.Event == Deputy:
		text = c.Deputy.is("is the deputy")
	case c.Leader != nil:
		text = c.Leader.is("leads")
	}
	if c.Previous != "" {
		text += ", after " + Shown(c.Previous)
	}
	if c.Event == Leads && c.Deputy != nil {
		text += ", deputy " + Shown(c.Deputy.ID)
	}
	_, err := fmt.Fprintf(w, "%s  %s  %s\n", c.At.Local().Format("2006-01-02 15:04:05.000"), c.Election, text)
	return err
}

// is says what the candidate does, and where.
func (c Candidate) is(what string) string {
	return fmt.Sprintf("%s %s (backend %d, user %s, from %s)", Shown(c.ID), what, c.PID, Shown(c.User), Shown(c.Address))
}

// ErrPrivilege is returned if the server refuses an eviction.
var ErrPrivilege = errors.New("the role lacks the privilege")

// ErrChanged is returned if the leader to evict no longer leads.
var ErrChanged = errors.New("no longer leads")

// ErrStays is returned if the leader to evict does not end in time.
var ErrStays = errors.New("was told to end, and still holds the lock")

const goneEvery = 20 * time.Millisecond // between two checks for the end of a backend

// Evict ends the leader's backend if it still holds the election's lock, and waits until the
// backend has released it.
func Evict(ctx context.Context, pool *sql.DB, e Election) error {
	signalled, err := ask.Server(ctx, pool, func(ctx context.Context, q *db.Queries) ([]bool, error) {
		return q.EvictHolder(ctx, db.EvictHolderParams{Pid: e.Leader.PID, Key: e.Key})
	})
	switch {
	case ask.State(err) == "42501":
		return fmt.Errorf("%w to end a backend of user %q: connect as that user, or GRANT pg_signal_backend; "+
			"if %[2]q is a superuser, connect as a superuser: %w", ErrPrivilege, e.Leader.User, err)
	case err != nil:
		return err
	case len(signalled) == 0:
		return fmt.Errorf("%s (backend %d) %w", Shown(e.Leader.ID), e.Leader.PID, ErrChanged)
	}
	for {
		held, err := holds(ctx, pool, e)
		switch {
		case ctx.Err() != nil && (held || err != nil): // the last question is cut off, too
			return fmt.Errorf("backend %d %w: it hangs, so nobody leads. On the server's host, \"ps -o stat,wchan -p %[1]d\" says how: a stopped one "+
				"(T) ends after \"kill -CONT %[1]d\". Never send it KILL: that restarts the server. See docs/runbook.md#leader-is-silent", e.Leader.PID, ErrStays)
		case err != nil || !held:
			return err
		}
		ask.Sleep(ctx, goneEvery)
	}
}

// Next waits for some seconds until somebody leads, and returns who; nil if nobody does. A new leader's name comes
// a moment after its lock, and then its lease.
func Next(ctx context.Context, pool *sql.DB, e Election) *Candidate {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for began := time.Now(); ; {
		holder, err := ask.Server(ctx, pool, func(ctx context.Context, q *db.Queries) (db.HolderRow, error) { return q.Holder(ctx, e.Key) })
		if err == nil && holder.Blocks == "" && (holder.LeaseMillis != 0 || time.Since(began) >= naming) {
			return &Candidate{ID: holder.ApplicationName, PID: holder.Pid}
		}
		if !ask.Sleep(ctx, goneEvery) {
			return nil
		}
	}
}

// holds reports whether the leader still holds the lock.
func holds(ctx context.Context, pool *sql.DB, e Election) (bool, error) {
	holder, err := ask.Server(ctx, pool, func(ctx context.Context, q *db.Queries) (db.HolderRow, error) { return q.Holder(ctx, e.Key) })
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return holder.Pid == e.Leader.PID, err
}
