//go:build unix

package main

import (
	"cmp"
	"slices"

	"github.com/pgelector/pgelector/e2e/history"
)

// board is the state of the candidates, built from their events. It is not safe for concurrent
// use: the stage and the live view each have one.
type board struct {
	read  int // events of the log that were applied
	seats []*seat
	reign []*reign // in order of their beginning
}

// seat is one candidate. A new candidate takes the seat of a dead one.
type seat struct {
	name, driver string
	pid          int

	leading  bool // the last result of IsLeader
	token    int64
	deadline history.Time
	frozen   bool
	dead     bool
	left     bool // dead, after an orderly exit

	follows  history.Time    // its last attempt that found another leader
	thawed   *history.Event  // until IsLeader has returned again
	woke     *history.Event  // the first IsLeader after the thaw
	demoted  *history.Event  // the last
	resigned *history.Event  // the last
	checked  *history.Event  // the last
	tried    []history.Event // Wrote and Refused, since the last check
}

// reign is one term, as its process reported it.
type reign struct {
	process string
	token   int64
	began   history.Time
	last    history.Time // when it last believed to lead; while it goes on, when its lease ends
	ended   history.Time // 0 while it goes on
	frozen  history.Time // 0 if it was not
}

// update applies the new events of the log.
func (b *board) update(events []history.Event) {
	for _, e := range events {
		b.apply(e)
	}
	b.read += len(events)
}

func (b *board) apply(e history.Event) {
	if e.Kind == history.Hello {
		b.seat(&seat{name: e.Process, driver: e.Text, pid: e.PID})
		return
	}
	s := b.of(e.Process)
	if s == nil {
		return
	}
	switch e.Kind {
	case history.Sample:
		s.sampled(e, b.current(e.Process))
	case history.Began:
		b.reign = append(b.reign, &reign{process: e.Process, token: e.Token, began: e.At, last: e.At})
	case history.Ended:
		b.end(e.Process, e.At)
	case history.Demoted:
		s.demoted = &e
	case history.Resigned:
		s.resigned = &e
	case history.Checked:
		s.checked, s.tried = &e, nil
	case history.Wrote, history.Refused:
		s.tried = append(s.tried, e)
	case history.Attempt:
		if e.Text == "busy" {
			s.follows = e.At
		}
	case history.Killed:
		s.dead, s.leading = true, false
		b.end(e.Process, e.At)
	case history.Bye:
		s.dead, s.left, s.leading = true, true, false
	case history.Frozen:
		s.frozen = true
		if r := b.current(e.Process); r != nil {
			r.frozen = e.At
		}
	case history.Thawed:
		s.frozen, s.thawed, s.woke = false, &e, nil
	}
}

func (s *seat) sampled(e history.Event, current *reign) {
	s.leading = e.Leading
	if e.Leading {
		s.token, s.deadline = e.Token, e.Deadline
		if current != nil {
			current.last = e.Deadline
		}
	}
	if s.thawed != nil && e.At >= s.thawed.At {
		s.thawed, s.woke = nil, &e
	}
}

// seat adds a candidate.
func (b *board) seat(s *seat) {
	if i := slices.IndexFunc(b.seats, func(s *seat) bool { return s.dead }); i >= 0 {
		b.seats[i] = s
		return
	}
	b.seats = append(b.seats, s)
	slices.SortFunc(b.seats, func(x, y *seat) int { return cmp.Compare(x.name, y.name) })
}

func (b *board) of(name string) *seat {
	if i := slices.IndexFunc(b.seats, func(s *seat) bool { return s.name == name }); i >= 0 {
		return b.seats[i]
	}
	return nil
}

// current returns the current reign of a process, or nil.
func (b *board) current(name string) *reign {
	for _, r := range slices.Backward(b.reign) {
		if r.process == name && r.ended == 0 {
			return r
		}
	}
	return nil
}

// end ends a reign. The reign of a frozen process ends with its lease.
func (b *board) end(name string, at history.Time) {
	if r := b.current(name); r != nil {
		r.ended = min(at, r.last)
	}
}

// after returns the first reign with a larger token.
func (b *board) after(token int64) *reign {
	if i := slices.IndexFunc(b.reign, func(r *reign) bool { return r.token > token }); i >= 0 {
		return b.reign[i]
	}
	return nil
}

// settled returns the current reign, once its process reports that it leads and all others
// have since found another leader.
func (b *board) settled() *reign {
	if len(b.reign) == 0 {
		return nil
	}
	r := b.reign[len(b.reign)-1]
	if s := b.of(r.process); r.ended != 0 || s == nil || s.frozen || !s.leading {
		return nil
	}
	for _, s := range b.seats {
		if s.name != r.process && !s.dead && (s.frozen || s.follows <= r.began) {
			return nil
		}
	}
	return r
}
