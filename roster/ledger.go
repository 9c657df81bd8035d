package roster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
)

// maxWaiting bounds the terms that wait to be written. At one election a second it covers
// 17 minutes without a database.
const maxWaiting = 1024

// A ledger holds what is not yet in the database. It knows nothing of goroutines or SQL.
type ledger struct {
	grace   time.Duration // how long a candidate stays without an event
	present map[candidateKey]*presence
	leaving map[candidateKey]bool
	of      map[candidateKey]json.RawMessage // metadata of one election, instead of that of all
	prefers map[candidateKey]int32           // the priorities of candidates that have one
	waiting []term                           // the oldest first
	dropped int64
	refused []error // not reported yet
	news    bool    // something must be written at once
}

// candidateKey identifies one candidate of one election.
type candidateKey struct {
	Key         int64  `json:"key"`
	CandidateID string `json:"candidate_id"`
}

func keyOf(o hooks.Origin) candidateKey { return candidateKey{o.Key, o.CandidateID} }

// presence is a candidate that takes part.
type presence struct {
	election  string
	leading   bool
	health    *elector.Health // nil if unknown
	period    time.Duration   // between two attempts
	until     time.Time       // when it counts as stopped, unless it leads or is heard of again
	published bool            // as it is now
	sending   bool            // a write that is under way publishes it as it is now
	refused   bool            // the server has refused to publish it, which was reported
	began     moment          // of the last OnElected
	ended     moment          // of the last OnDemoted
}

// moment tells the beginning or the end of a term from all others.
type moment struct {
	token int64
	at    time.Time
}

// publishAgain makes the next write publish the candidate, also if one is under way.
func (p *presence) publishAgain() { p.published, p.sending = false, false }

// term is what is known of a term. It is comparable.
type term struct {
	candidateKey
	election  string
	token     int64
	electedAt time.Time // on this process's clock
	endedAt   time.Time // zero while it goes on
	reason    hooks.Reason
	err       string
}

// batch is what one write sends.
type batch struct {
	publish []candidate
	leave   []candidateKey
	terms   []term
}

type candidate struct {
	candidateKey
	Election string `json:"election"`

	health   *elector.Health // nil if unknown
	metadata json.RawMessage // nil for that of all elections
	priority *int32          // nil for none
}

func newLedger(grace time.Duration) *ledger {
	return &ledger{grace: grace, present: map[candidateKey]*presence{}, leaving: map[candidateKey]bool{}, of: map[candidateKey]json.RawMessage{}, prefers: map[candidateKey]int32{}}
}

// join returns the candidate's presence, and adds it if it is new.
func (l *ledger) join(o hooks.Origin) *presence {
	k := keyOf(o)
	p := l.present[k]
	if p == nil {
		p = &presence{election: o.Election}
		l.present[k] = p
		delete(l.leaving, k)
		l.news = true
	}
	return p
}

// saw records an event of the candidate.
func (l *ledger) saw(o hooks.Origin, at time.Time) *presence {
	p := l.join(o)
	p.until = at.Add(2*p.period + l.grace)
	return p
}

// attempted records an attempt. The next one ends after the reported wait and as long as
// this one took: a deputy, or a candidate on a shared session, reports no wait.
func (l *ledger) attempted(e hooks.Campaign) {
	if e.Outcome != hooks.Granted {
		l.join(e.Origin).period = e.Took + e.Next
	}
	l.saw(e.Origin, e.At)
}

// checked records the health, and reports whether that has changed. A recent check shows that the
// candidate takes part, and so does a report while it takes part.
func (l *ledger) checked(o hooks.Origin, health elector.Health, now time.Time) (changed bool) {
	until := health.At.Add(l.grace)
	if health.Current {
		until = now.Add(l.grace)
	}
	if now.After(until) && l.present[keyOf(o)] == nil {
		return false
	}
	p := l.join(o)
	if changed = p.health == nil || differ(*p.health, health); changed {
		p.publishAgain()
	}
	p.health = &health
	if until.After(p.until) {
		p.until = until
	}
	return changed
}

// differ reports whether others must hear of a health. A time alone is no news.
func differ(a, b elector.Health) bool {
	return a.Score != b.Score || a.Healthy != b.Healthy || a.Minimum != b.Minimum || a.Why != b.Why || !maps.Equal(a.Metadata, b.Metadata)
}

func (l *ledger) elected(e hooks.Elected) {
	p := l.saw(e.Origin, e.At)
	if p.began == (moment{e.Token, e.At}) { // the Roster is twice among the hooks
		return
	}
	p.leading, p.began = true, moment{e.Token, e.At}
	p.publishAgain() // Roster.Observe waits for it
	l.note(term{candidateKey: keyOf(e.Origin), election: e.Election, token: e.Token, electedAt: e.At})
}

func (l *ledger) demoted(e hooks.Demoted) {
	p := l.saw(e.Origin, e.At.Add(e.Late)) // it was noticed then
	if p.ended == (moment{e.Token, e.At}) {
		return
	}
	p.leading, p.ended = false, moment{e.Token, e.At}
	t := term{candidateKey: keyOf(e.Origin), election: e.Election, token: e.Token,
		electedAt: e.At.Add(-e.Held), endedAt: e.At, reason: e.Reason}
	if e.Err != nil {
		t.err = e.Err.Error()
	}
	l.note(t)
}

// note adds a term, and replaces what was known of it.
func (l *ledger) note(t term) {
	same := func(old term) bool { return old.candidateKey == t.candidateKey && old.token == t.token }
	l.waiting = append(slices.DeleteFunc(l.waiting, same), t)
	l.news = true
	if surplus := len(l.waiting) - maxWaiting; surplus > 0 {
		l.waiting = slices.Delete(l.waiting, 0, surplus)
		l.dropped += int64(surplus)
	}
}

// leave removes a candidate, to be marked as left.
func (l *ledger) leave(k candidateKey) {
	delete(l.present, k)
	l.leaving[k] = true
}

// expire removes the candidates that have reported nothing for long.
func (l *ledger) expire(now time.Time) {
	for k, p := range l.present {
		if !p.leading && now.After(p.until) {
			l.leave(k)
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

// batch returns what to write: all candidates, or only those not published yet.
func (l *ledger) batch(all bool) batch {
	l.news = false
	b := batch{terms: slices.Clone(l.waiting)}
	for k, p := range l.present {
		if all || !p.published {
			c := candidate{candidateKey: k, Election: p.election, health: p.health, metadata: l.of[k]}
			if n, prefers := l.prefers[k]; prefers {
				c.priority = &n
			}
			b.publish = append(b.publish, c)
			p.sending = true
		}
	}
	for k := range l.leaving {
		b.leave = append(b.leave, k)
	}
	return b
}

func (b batch) empty() bool { return len(b.publish)+len(b.leave)+len(b.terms) == 0 }

// wrote records that a batch is in the database. What changed since remains to be written.
func (l *ledger) wrote(b batch) {
	for _, c := range b.publish {
		if p := l.present[c.candidateKey]; p != nil {
			p.published = p.sending
		}
	}
	for _, k := range b.leave {
		delete(l.leaving, k)
	}
	written := make(map[term]bool, len(b.terms))
	for _, t := range b.terms {
		written[t] = true
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(t term) bool { return written[t] })
}

// refuseTerm drops a term that the server refuses.
func (l *ledger) refuseTerm(t term, err error) {
	before := len(l.waiting)
	l.waiting = slices.DeleteFunc(l.waiting, func(w term) bool { return w == t })
	if len(l.waiting) < before {
		l.dropped++
		l.refuse(t.candidateKey, fmt.Sprintf("the term %d", t.token), err)
	}
}

// refuseCandidate reports once that the server refuses to publish a candidate.
func (l *ledger) refuseCandidate(k candidateKey, err error) {
	if p := l.present[k]; p != nil && !p.refused {
		p.refused = true
		l.refuse(k, "the candidate", err)
	}
}

// refuseLeave forgets a candidate that the server refuses to mark as left.
func (l *ledger) refuseLeave(k candidateKey, err error) {
	if l.leaving[k] {
		delete(l.leaving, k)
		l.refuse(k, "the end of the candidate", err)
	}
}

func (l *ledger) refuse(k candidateKey, what string, err error) {
	l.refused = append(l.refused, fmt.Errorf("%w: the server refuses the row of %s (%q, key %d): %w", ErrDropped, what, k.CandidateID, k.Key, err))
}

// republish makes the next write publish every candidate, with other metadata than a write
// that is under way.
func (l *ledger) republish() {
	for _, p := range l.present {
		p.publishAgain()
	}
	l.news = true
}

var (
	_ hooks.CampaignHook = (*Roster)(nil)
	_ hooks.ElectedHook  = (*Roster)(nil)
	_ hooks.DemotedHook  = (*Roster)(nil)
)

// Add makes the Roster a hook of the electors (elector.Elector.AddHooks), which does no harm if
// elector.WithHooks has done so before. It also makes the Roster publish the health of their
// candidates: the score of the last check (elector.WithHealth). A candidate that is unhealthy
// and therefore makes no attempt stays published if it is checked at least once in three
// publish intervals. A priority (elector.WithPriority) is published as metadata of the key "priority",
// unless the program sets that key. Add ignores electors that were added already. If an elector is nil, it
// adds none and returns an error that wraps elector.ErrConfig.
func (r *Roster) Add(electors ...*elector.Elector) (err error) {
	if i := slices.Index(electors, nil); i >= 0 {
		return fmt.Errorf("%w: elector %d is nil", elector.ErrConfig, i+1)
	}
	r.note(func(l *ledger) {
		for _, e := range electors {
			if err != nil || r.unhook[e] != nil {
				continue
			}
			var remove func()
			if remove, err = e.AddHooks(r); err == nil {
				r.electors, r.unhook[e] = append(r.electors, e), remove
				if s := e.Settings(); s.PreemptDelay != 0 {
					l.prefers[candidateKey{e.Key(), e.CandidateID()}] = s.Priority
				}
			}
		}
	})
	return err
}

// Remove removes electors, such as closed ones (elector.Elector.Close), and what Add has added
// to their hooks. It ignores electors that were not added.
func (r *Roster) Remove(electors ...*elector.Elector) {
	r.note(func(l *ledger) {
		r.electors = slices.DeleteFunc(r.electors, func(e *elector.Elector) bool {
			if !slices.Contains(electors, e) {
				return false
			}
			r.unhook[e]()
			delete(r.unhook, e)
			delete(l.prefers, candidateKey{e.Key(), e.CandidateID()})
			return true
		})
	})
}

// OnCampaign records that the candidate takes part. It does not block.
func (r *Roster) OnCampaign(_ context.Context, e hooks.Campaign) {
	r.note(func(l *ledger) { l.attempted(e) })
}

// OnElected records that a term began. It does not block.
func (r *Roster) OnElected(_ context.Context, e hooks.Elected) {
	r.note(func(l *ledger) { l.elected(e) })
}

// OnDemoted records that a term ended. It does not block.
func (r *Roster) OnDemoted(_ context.Context, e hooks.Demoted) {
	r.note(func(l *ledger) { l.demoted(e) })
}

// note changes the ledger, and starts or wakes the writer.
func (r *Roster) note(change func(*ledger)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing.Err() != nil {
		return
	}
	dropped := r.ledger.dropped
	change(r.ledger)
	r.overflow += r.ledger.dropped - dropped
	if !r.running {
		r.running = true
		go backoff.Apart(r.run)()
	}
	if r.ledger.news {
		r.wakeUp()
	}
}

func (r *Roster) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
