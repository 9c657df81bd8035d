package roster

import (
	"slices"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// maxWaiting is how many terms wait to be written at the most. Beyond it the
// oldest are dropped: a service that elects a leader each second, and cannot write
// for a quarter of an hour, loses the beginning of that.
const maxWaiting = 1024

// A ledger is what the hooks were told and the database was not. It knows
// nothing of goroutines or of SQL.
type ledger struct {
	grace   time.Duration // how long a candidate stays that is not heard of
	present map[who]*presence
	leaving map[who]bool
	waiting []term // the oldest first
	dropped int64
	news    bool // something is to be written at once
}

// who is one candidate of one election.
type who struct {
	Key         int64  `json:"key"`
	CandidateID string `json:"candidate_id"`
}

// presence is a candidate that takes part.
type presence struct {
	election  string
	leading   bool
	period    time.Duration // from one attempt to the next
	until     time.Time     // when it counts as stopped, unless it leads or is heard of again
	published bool
}

// term is what is known of a term. Two are equal if nothing was learnt in between.
type term struct {
	who
	election  string
	token     int64
	electedAt time.Time // on this process's clock
	endedAt   time.Time // zero while it goes on
	reason    hooks.Reason
	err       string
}

// batch is what is to be written at once.
type batch struct {
	publish []candidate
	leave   []who
	terms   []term
}

type candidate struct {
	who
	Election string `json:"election"`
}

func newLedger(grace time.Duration) *ledger {
	return &ledger{grace: grace, present: map[who]*presence{}, leaving: map[who]bool{}}
}

// saw notes that a candidate takes part, and returns what is known of it.
func (l *ledger) saw(o hooks.Origin, at time.Time) *presence {
	w := who{o.Key, o.CandidateID}
	p := l.present[w]
	if p == nil {
		p = &presence{election: o.Election}
		l.present[w] = p
		delete(l.leaving, w)
		l.news = true
	}
	p.until = at.Add(2*p.period + l.grace)
	return p
}

// attempted notes an attempt. The next one is expected after the wait that was
// told, and as long as this one took: a candidate that waits in the server, or for
// its turn on a shared session, tells of no wait.
func (l *ledger) attempted(e hooks.Campaign) {
	p := l.saw(e.Origin, e.At)
	if e.Outcome != hooks.Granted {
		p.period = e.Took + e.Next
		l.saw(e.Origin, e.At)
	}
}

func (l *ledger) elected(e hooks.Elected) {
	l.saw(e.Origin, e.At).leading = true
	l.note(term{who: who{e.Key, e.CandidateID}, election: e.Election, token: e.Token, electedAt: e.At})
}

func (l *ledger) demoted(e hooks.Demoted) {
	l.saw(e.Origin, e.At).leading = false
	t := term{who: who{e.Key, e.CandidateID}, election: e.Election, token: e.Token,
		electedAt: e.At.Add(-e.Held), endedAt: e.At, reason: e.Reason}
	if e.Err != nil {
		t.err = e.Err.Error()
	}
	l.note(t)
}

// note puts a term where the writer finds it, in the place of what was known of it.
func (l *ledger) note(t term) {
	same := func(old term) bool { return old.who == t.who && old.token == t.token }
	l.waiting = append(slices.DeleteFunc(l.waiting, same), t)
	l.news = true
	if surplus := len(l.waiting) - maxWaiting; surplus > 0 {
		l.waiting = slices.Delete(l.waiting, 0, surplus)
		l.dropped += int64(surplus)
	}
}

// leave notes that a candidate takes part no more.
func (l *ledger) leave(w who) {
	delete(l.present, w)
	l.leaving[w] = true
}

// expire makes those leave that were not heard of for long.
func (l *ledger) expire(now time.Time) {
	for w, p := range l.present {
		if !p.leading && now.After(p.until) {
			l.leave(w)
		}
	}
}

// leads reports whether any candidate leads.
func (l *ledger) leads() bool {
	for _, p := range l.present {
		if p.leading {
			return true
		}
	}
	return false
}

// batch is what is to be written: of the candidates all, or those that were not
// published yet.
func (l *ledger) batch(all bool) batch {
	l.news = false
	b := batch{terms: slices.Clone(l.waiting)}
	for w, p := range l.present {
		if all || !p.published {
			b.publish = append(b.publish, candidate{w, p.election})
		}
	}
	for w := range l.leaving {
		b.leave = append(b.leave, w)
	}
	return b
}

func (b batch) empty() bool { return len(b.publish)+len(b.leave)+len(b.terms) == 0 }

// wrote notes that a batch is in the database. What has changed meanwhile is not.
func (l *ledger) wrote(b batch) {
	for _, c := range b.publish {
		if p := l.present[c.who]; p != nil {
			p.published = true
		}
	}
	for _, w := range b.leave {
		delete(l.leaving, w)
	}
	written := make(map[term]bool, len(b.terms))
	for _, t := range b.terms {
		written[t] = true
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(t term) bool { return written[t] })
}

// republish makes every candidate be published at the next write.
func (l *ledger) republish() {
	for _, p := range l.present {
		p.published = false
	}
	l.news = true
}
