package hookstest

import (
	"context"
	"fmt"
	"strings"

	"github.com/pgelector/pgelector/hooks"
)

// Wait returns the first event of type E that match accepts, past or future. A nil match
// accepts any. If ctx ends first, the error wraps its cause and lists the events so far.
func Wait[E Event](ctx context.Context, r *Recorder, match func(E) bool) (E, error) {
	return Next(ctx, r.Cursor(), match)
}

// WaitN is like [Wait] for the first n such events. With an error it returns the events
// that it found.
func WaitN[E Event](ctx context.Context, r *Recorder, n int, match func(E) bool) ([]E, error) {
	c := r.Cursor()
	var found []E
	for len(found) < n {
		e, err := Next(ctx, c, match)
		if err != nil {
			return found, fmt.Errorf("%d of %d events came: %w", len(found), n, err)
		}
		found = append(found, e)
	}
	return found, nil
}

// A Cursor is a position in the events of a [Recorder]. It is not safe for concurrent use.
type Cursor struct {
	r  *Recorder
	at int
}

// Cursor returns a cursor before the first event.
func (r *Recorder) Cursor() *Cursor { return &Cursor{r: r} }

// SkipSeen moves the cursor past all recorded events.
func (c *Cursor) SkipSeen() { c.at = len(c.r.Events()) }

// Next is like [Wait] for the events after the cursor. It moves the cursor past the event
// that it returns. With an error it does not move the cursor.
func Next[E Event](ctx context.Context, c *Cursor, match func(E) bool) (E, error) {
	for at := c.at; ; {
		events, more := c.r.since(at)
		for _, event := range events {
			at++
			if e, ok := event.(E); ok && (match == nil || match(e)) {
				c.at = at
				return e, nil
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			seen, _ := c.r.since(c.at)
			var zero E
			return zero, fmt.Errorf("hookstest: no matching %T: %w; events so far: %s",
				zero, context.Cause(ctx), describe(seen))
		}
	}
}

// Of returns a match for [Wait], [WaitN] and [Next] that accepts the events of
// one candidate.
func Of[E Event](candidateID string) func(E) bool {
	return func(e E) bool { return originOf(e).CandidateID == candidateID }
}

func originOf(event any) hooks.Origin {
	switch e := event.(type) {
	case hooks.Elected:
		return e.Origin
	case hooks.Demoted:
		return e.Origin
	case hooks.LeaderChanged:
		return e.Origin
	case hooks.Failure:
		return e.Origin
	case hooks.Heartbeat:
		return e.Origin
	case hooks.Campaign:
		return e.Origin
	case hooks.Closed:
		return e.Origin
	default:
		panic(fmt.Sprintf("hookstest: %T is not an event", event))
	}
}

// maxDescribed bounds the runs of equal events in an error.
const maxDescribed = 20

// describe lists events in one line, and counts repetitions.
func describe(events []any) string {
	type run struct {
		what  string
		times int
	}
	var runs []run
	for _, event := range events {
		what := describeOne(event)
		if n := len(runs); n > 0 && runs[n-1].what == what {
			runs[n-1].times++
		} else {
			runs = append(runs, run{what, 1})
		}
	}
	if len(runs) == 0 {
		return "nothing"
	}
	var parts []string
	if len(runs) > maxDescribed {
		parts = append(parts, "...")
		runs = runs[len(runs)-maxDescribed:]
	}
	for _, r := range runs {
		if r.times > 1 {
			r.what += fmt.Sprintf(" ×%d", r.times)
		}
		parts = append(parts, r.what)
	}
	return strings.Join(parts, ", ")
}

func describeOne(event any) string {
	who := label(originOf(event))
	switch e := event.(type) {
	case hooks.Elected:
		return fmt.Sprintf("Elected(%s token=%d)", who, e.Token)
	case hooks.Demoted:
		return fmt.Sprintf("Demoted(%s token=%d %s: %v)", who, e.Token, e.Reason, e.Err)
	case hooks.LeaderChanged:
		return fmt.Sprintf("LeaderChanged(%s %q to %q)", who, e.Previous, e.Current)
	case hooks.Failure:
		return fmt.Sprintf("Failure(%s %s: %v)", who, e.Op, e.Err)
	case hooks.Heartbeat:
		return fmt.Sprintf("Heartbeat(%s token=%d)", who, e.Token)
	case hooks.Campaign:
		what := string(e.Outcome)
		if e.Deputy {
			what += ", deputy"
		}
		return fmt.Sprintf("Campaign(%s %s)", who, what)
	case hooks.Closed:
		return fmt.Sprintf("Closed(%s)", who)
	default:
		return fmt.Sprintf("%T", event)
	}
}

func label(o hooks.Origin) string { return o.Election + "/" + o.CandidateID }
