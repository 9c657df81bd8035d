//go:build linux

package fleet

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
)

// How often a sample is recorded that says what the last one said. A kill may
// cost so much of a belief.
const (
	tellLeading   = 50 * time.Millisecond
	tellFollowing = time.Second
	blink         = 100 * time.Millisecond // longer between two questions, the process was not running
)

// sample asks, over and over, what this process believes, and records each
// change: the last answer before it, and the first one after.
func (s *stand) sample(ctx context.Context) {
	var last, told history.Event
	tell := func(e history.Event) {
		if e.At != 0 && e.At != told.At {
			told = e
			s.record(e)
		}
	}
	for ctx.Err() == nil {
		e := s.ask()
		often := tellFollowing
		if e.Leading {
			often = tellLeading
		}
		switch {
		case e.Leading != last.Leading, e.Token != last.Token, e.At.Sub(last.At) > blink:
			tell(last)
			tell(e)
		case e.At.Sub(told.At) > often:
			tell(e)
		}
		last = e
		select {
		case <-time.After(sampling):
		case <-ctx.Done():
		}
	}
	tell(last)
}

// ask asks both, the term first: a term that has ended is not taken for the next.
func (s *stand) ask() history.Event {
	e := history.Event{Kind: history.Sample, At: history.Now()}
	term, _ := s.elector.Term()
	e.Leading = s.elector.IsLeader()
	e.Took = history.Now().Sub(e.At)
	if term != nil {
		e.Token = term.Token()
	}
	return e
}
