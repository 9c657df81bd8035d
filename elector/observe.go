package elector

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/deputy"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/promotion"
	"github.com/pgelector/pgelector/internal/wakeup"
)

// IsLeader reports whether this elector leads, by the clocks at the time of
// the call. It costs no round trip and no allocation.
func (e *Elector) IsLeader() bool {
	_, leading := e.Term()
	return leading
}

// Term returns the term that goes on, and whether there is one.
func (e *Elector) Term() (term *Term, leading bool) {
	if term = e.term.Load(); term == nil || !term.Valid() {
		return nil, false
	}
	return term, true
}

// CandidateID is the id of this candidate.
func (e *Elector) CandidateID() string { return e.candidateID }

// Election is the name of the election.
func (e *Elector) Election() string { return e.election }

// Key is the advisory lock key of the election.
func (e *Elector) Key() int64 { return e.key }

// Leader is the session that holds an election's lock, as any role can see it.
type Leader struct {
	CandidateID string    // the application_name of the session; for an instant after the grant still that of its pool
	PID         int32     // of the backend: what pg_terminate_backend takes
	User        string    // the role of the session
	Addr        string    // where it connects from; "" if hidden from this role, or a Unix socket
	SessionAt   time.Time // when the session began; zero if hidden from this role

	// The session itself publishes these. They are zero if it does not lead, or belongs to
	// another program.
	Lease     time.Duration
	Scope     Scope     // SessionScope or TransactionScope; Auto if unknown
	ElectedAt time.Time // when its term began, to the second; zero on a shared session ([NewSession]), and for a moment at first
	Priority  int32     // WithPriority; 0 without it, and for a moment at first

	// By the server's clock: when the session last began or ended a statement, when the server ends it
	// unless it does so again, and when the server was asked. The first two are zero if there is no lease, or if
	// they are hidden from this role: GRANT pg_read_all_stats.
	RenewedAt time.Time
	ExpiresAt time.Time
	AskedAt   time.Time
}

// Liveness is whether a leader lives by its lease.
type Liveness int

const (
	// CannotTell: there is no lease, or this role may not see when it was renewed.
	CannotTell Liveness = iota
	// Alive: the lease was renewed, and has not run out.
	Alive
	// Expired: the lease has run out, and the server has not ended the session yet.
	Expired
)

// String is "cannot tell", "alive" or "expired".
func (l Liveness) String() string {
	return nameOf("Liveness", int(l), "cannot tell", "alive", "expired")
}

// Alive reports whether the leader's lease was still running when the server was asked.
func (l Leader) Alive() Liveness {
	switch {
	case l.RenewedAt.IsZero():
		return CannotTell
	case l.AskedAt.Before(l.ExpiresAt):
		return Alive
	}
	return Expired
}

func leaderOf(h holder.Holder) Leader {
	l := Leader{CandidateID: h.CandidateID, PID: h.PID, User: h.User, Addr: h.Addr, SessionAt: h.SessionAt,
		Lease: h.Lease, Scope: Scope(h.Scope), ElectedAt: h.ElectedAt, Priority: h.Priority, AskedAt: h.AskedAt}
	if h.Lease != 0 && !h.RenewedAt.IsZero() {
		l.RenewedAt, l.ExpiresAt = h.RenewedAt, h.RenewedAt.Add(h.Lease)
	}
	return l
}

// session is what does not change while the session leads.
func (l Leader) session() Leader {
	return Leader{CandidateID: l.CandidateID, PID: l.PID, User: l.User, Addr: l.Addr, SessionAt: l.SessionAt}
}

// Candidate is a session that leads, or will lead next. The fields that Leader has, too, mean the same.
type Candidate struct {
	CandidateID string
	PID         int32
	User        string
	Addr        string
	SessionAt   time.Time

	Leading  bool
	Deputy   bool      // holds the deputy's seat, and leads when the leader is gone
	QueuedAt time.Time // since when it waits in the server's queue; zero if it does not, or the server does not know yet

	// They are zero unless it leads.
	Lease     time.Duration
	Scope     Scope
	ElectedAt time.Time
	Priority  int32
}

func candidateOf(l Leader) Candidate {
	return Candidate{CandidateID: l.CandidateID, PID: l.PID, User: l.User, Addr: l.Addr, SessionAt: l.SessionAt,
		Lease: l.Lease, Scope: l.Scope, ElectedAt: l.ElectedAt, Priority: l.Priority}
}

// Leader asks the server who leads, by one statement on a connection of the pool, and by one
// more if this elector leads and the server does not say so. It returns an error that wraps
// ErrNoLeader if no session holds the lock exclusively, as on a standby, which knows none of its
// primary's; it names a session or prepared transaction that keeps the lock from all. It waits for
// each answer until ctx ends, and no longer than one lease.
func (e *Elector) Leader(ctx context.Context) (Leader, error) {
	holder, held, err := holder.Of(ctx, e.pool, e.key, e.lease.Length)
	if err != nil {
		return Leader{}, fmt.Errorf("elector: ask who leads: %w", err)
	}
	if term, leading := e.Term(); leading && holder.PID != term.lock.Session().PID() { // the pool may have reached another server
		promotion.ProbeServer(ctx, e.pool, e.lease.Length)
	}
	if !held {
		return Leader{}, noLeader(holder)
	}
	e.sees(holder.CandidateID, time.Now())
	return leaderOf(holder), nil
}

// noLeader is ErrNoLeader, with who keeps the lock from all candidates.
func noLeader(holder holder.Holder) error {
	if holder.Blocks == "" {
		return ErrNoLeader
	}
	return fmt.Errorf("%w: %s", ErrNoLeader, holder.Blocks)
}

// LastLeader returns the candidate that led when this elector last knew of one, and when that
// was; "" if it has known of none. It asks nothing, so the answer may be old. It knows of its
// own terms, and of what Leader, Candidates and Observe have found. Attempts find the leader
// too, if there is a hook for OnLeaderChanged.
func (e *Elector) LastLeader() (candidateID string, at time.Time) {
	if term, leading := e.Term(); leading {
		return e.candidateID, term.RenewedAt()
	}
	if last := e.last.Load(); last != nil {
		return last.candidateID, last.at
	}
	return "", time.Time{}
}

// Candidates asks the server for the candidates that it knows: the leader first, then the
// deputy, then others that wait in the server's queue. The other followers hold nothing in
// the server between their attempts, so they do not show. The leader is asked for before the
// others: while it changes, the list may have a session twice, or not at all, and for a moment
// there may be two deputies, or none.
func (e *Elector) Candidates(ctx context.Context) ([]Candidate, error) {
	var all []Candidate
	leader, err := e.Leader(ctx)
	switch {
	case err == nil:
		c := candidateOf(leader)
		c.Leading = true
		all = append(all, c)
	case !errors.Is(err, ErrNoLeader):
		return nil, err
	}
	followers, err := deputy.FollowersOf(ctx, e.pool, e.key, e.lease.Length)
	if err != nil {
		return nil, fmt.Errorf("elector: ask who follows: %w", err)
	}
	for _, f := range followers {
		c := candidateOf(leaderOf(f.Holder))
		c.Deputy, c.QueuedAt = f.Deputy, f.Since
		all = append(all, c)
	}
	return all, nil
}

// Observe yields who leads, at once and then at each change, until ctx ends or the loop is
// left. It works on any elector, whether or not it campaigns. It asks the server once per
// retry interval, and at once when a notification says that the leader has changed
// (WithNotifier). It does not see a leader that comes and goes in between. While nobody leads,
// or the server cannot be asked, it yields what [Elector.Leader] returns then, once: a zero
// Leader and an error, which wraps ErrNoLeader if nobody leads.
func (e *Elector) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		wakeUps := wakeup.New()
		unsubscribe := e.subscribe(wakeUps.Wake, func(what event, _ string) bool { return what == eventFree || what == eventLed })
		defer unsubscribe()
		sends, stop := backoff.Detach(ctx) // no look is part of the caller's trace
		defer stop()
		var last Leader
		var lastErr error
		for first := true; ; first = false {
			leader, err := e.Leader(sends)
			if ctx.Err() != nil {
				return
			}
			same := leader.session() == last.session() && (err == nil) == (lastErr == nil) && errors.Is(err, ErrNoLeader) == errors.Is(lastErr, ErrNoLeader)
			if first || !same {
				if !yield(leader, err) {
					return
				}
				last, lastErr = leader, err
			}
			sleep(sends, backoff.Jitter(e.retryEvery()), wakeUps)
		}
	}
}
