package hooks

import (
	"context"
	"time"
)

// deadlineOf is the key of a term's deadline in the context of OnElected.
type deadlineOf struct{}

// WithDeadline returns a context for [ElectedHook], of a term that ends when deadline says. The elector
// makes it; others need it to test hooks.
func WithDeadline(ctx context.Context, deadline func() time.Time) context.Context {
	return context.WithValue(ctx, deadlineOf{}, deadline)
}

// Deadline returns when the term ends unless a heartbeat extends the term. ctx is the context of OnElected. Each call returns the
// newest deadline. Events of heartbeats come later, and do not come while a hook blocks. ok is false if the context
// is of no term.
func Deadline(ctx context.Context) (at time.Time, ok bool) {
	if deadline, ok := ctx.Value(deadlineOf{}).(func() time.Time); ok {
		return deadline(), true
	}
	return time.Time{}, false
}
