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

	"github.com/pgelector/pgelector/elector"
)

// Change is one line of a watch.
type Change struct {
	At       time.Time  `json:"at"`
	Election string     `json:"election"`
	Event    Event      `json:"event"`
	Leader   *Candidate `json:"leader,omitempty"`
	Previous string     `json:"previous,omitempty"` // the candidate that led before
	Error    string     `json:"error,omitempty"`
}

// Event is the kind of a change.
type Event string

// The events of a watch.
const (
	Leads       Event = "leads"       // another session leads than before
	Vacant      Event = "vacant"      // nobody leads
	Unreachable Event = "unreachable" // the leader is unknown
)

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
	var last Change
	ticker := time.NewTicker(w.Interval)
	defer ticker.Stop()
	for first := true; ; first = false {
		change, err := w.look(ctx, pool)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && first && permanent(err):
			return err
		}
		if change.Event != Unreachable && last.Leader != nil {
			change.Previous = last.Leader.ID
		}
		if first || !change.same(last) {
			if err := w.Report(change); err != nil {
				return err
			}
		}
		if change.Event == Unreachable {
			change.Leader = last.Leader // to compare the next answer with
		}
		last = change
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
		change.Event, change.Leader = Leads, snapshot.Elections[0].Leader
	}
	return change, err
}

// same compares sessions, not only ids: a candidate that lost and leads again is a change.
func (c Change) same(last Change) bool {
	if c.Event != last.Event || c.Event != Leads {
		return c.Event == last.Event
	}
	return c.Leader.ID == last.Leader.ID && c.Leader.PID == last.Leader.PID
}

// WriteJSON writes the change as one line.
func (c Change) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(c) }

// WriteLine writes the change as text.
func (c Change) WriteLine(w io.Writer) error {
	text := "nobody leads"
	switch {
	case c.Event == Unreachable:
		text = "leader unknown: " + strings.Join(strings.Fields(c.Error), " ") // on one line
	case c.Leader != nil:
		text = fmt.Sprintf("%s leads (backend %d, user %s, from %s)", orDash(c.Leader.ID), c.Leader.PID, orDash(c.Leader.User), orDash(c.Leader.Address))
	}
	if c.Previous != "" {
		text += ", after " + c.Previous
	}
	_, err := fmt.Fprintf(w, "%s  %s  %s\n", c.At.Local().Format("2006-01-02 15:04:05.000"), c.Election, text)
	return err
}
