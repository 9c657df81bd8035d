// Package preference moves leadership to the candidate that should lead. A candidate of higher priority than the leader's asks the
// leader to transfer the lock to it, as elector.RequestTransfer does:
//
//	the candidate                                  the leader
//	                                               Granted: tells its priority by a lock
//	Watch: sees a leader of lower priority,
//	has been up and well for the delay, and
//	the term is a minute old: asks, and tells
//	its own priority beside the request ─────────→ Yields: checks the same, and transfers the lock
//
// A preference is no promise, and elects nobody: the deputy may have any priority, so a failover is as fast as without one, and
// leadership then moves once more. Nothing is remembered but the leader's own term. So a candidate that comes and goes moves
// nothing: it has not been up for the delay.
package preference

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/transaction"
)

// Class is the first integer of the lock that tells a priority, which is the second: the first 31 bits of SHA-256 over "pgelector
// priority", without the sign.
const Class = 1901988892

// Told is the priority that a lock of two integers tells, by its key. told is false if the lock tells none.
func Told(key int64) (priority int32, told bool) { return int32(key), key>>32 == Class }

// MinTerm is how old a term is at the least before it ends in favor of a higher priority. Only tests change it, before any candidate
// begins.
var MinTerm = time.Minute

// spread bounds the random wait before a request: of several candidates the first one wins.
const spread = time.Second

// Due is how old a term is before it ends in favor of a higher priority.
func Due(delay time.Duration) time.Duration { return max(MinTerm, delay) }

// A Part tells a leader's priority.
type Part struct {
	election.NoPart
	Priority int32
}

// Granted takes the lock that tells the priority. If the server refuses the lock, because its lock table is full, say, the term
// begins all the same: others then see a leader of priority 0.
func (p *Part) Granted(ctx context.Context, s *election.Session, _ election.Grant) error {
	_, err := election.Ask(ctx, s, (*db.Queries).TellPriority, db.TellPriorityParams{Inside: transaction.IsOf(s), Priority: p.Priority})
	if pgerr.OfStatement(err) {
		return nil
	}
	return err
}

// A Watch looks, while a candidate campaigns, whether a candidate of lower priority leads.
type Watch struct {
	CandidateID string
	Priority    int32
	Delay       time.Duration                                         // for which the candidate has been up and well before it asks
	Every       func() time.Duration                                  // between two looks
	Well        func() context.Context                                // done once the candidate is unhealthy
	Leader      func(context.Context) (holder.Holder, bool)           // asks the server; false if nobody leads, or nobody answers
	Ask         func(ctx context.Context, leader holder.Holder) error // returns once the leader has answered, or has let go of its lock
	Failed      func(error)
}

// Run looks until ctx ends. It sends nothing before the candidate has been up and well for the delay. It asks once for each term, and
// again if the term still goes on when it could have ended twice.
func (w *Watch) Run(ctx context.Context) {
	well, up := w.Well(), time.Now()
	var term holder.Holder // the leader that was seen last
	var first time.Time    // when it was seen first
	for wait := time.Duration(0); backoff.Sleep(ctx, wait); {
		if now := w.Well(); now != well || now.Err() != nil {
			well, up = now, time.Now()
		}
		if wait = min(w.Delay-time.Since(up), w.Every()); wait > 0 {
			continue
		}
		wait = backoff.Jitter(w.Every())
		leader, led := w.Leader(ctx)
		if !led || leader.Priority >= w.Priority || leader.CandidateID == w.CandidateID {
			continue
		}
		if !term.GoesOn(leader) {
			term, first = leader, time.Now()
		}
		if young := Due(w.Delay) - age(leader, first); young > 0 {
			wait = young
			continue
		}
		if !backoff.Sleep(ctx, backoff.Spread(spread)) || well.Err() != nil {
			continue
		}
		asking, stop := backoff.Either(ctx, well)
		if err := w.Ask(asking, leader); err != nil && asking.Err() == nil {
			w.Failed(err)
		}
		stop()
		wait = Due(w.Delay)
	}
}

// age is how old the leader's term is at the least, by the server's clock if the leader tells since when it leads, to the second.
func age(leader holder.Holder, first time.Time) time.Duration {
	if leader.ElectedAt.IsZero() {
		return time.Since(first)
	}
	return leader.AskedAt.Sub(leader.ElectedAt) - time.Second
}
