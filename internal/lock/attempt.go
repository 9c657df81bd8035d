package lock

import (
	"context"
	"errors"
	"time"

	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/session"
)

// An Acquirer acquires one election's lock. It serves one campaign at a time.
type Acquirer interface {
	// Acquire makes one attempt, or spends one heartbeat interval on a session that it keeps for its attempts.
	Acquire(ctx context.Context, t Try) Attempt
	// Close gives up what the acquirer keeps between two attempts. The next attempt is
	// again the first of a campaign.
	Close()
}

// A Try is what the campaign knows before an attempt.
type Try struct {
	Last  Standing
	Woken Waker // may end a wait; not nil
	Once  bool  // there will be no other attempt: keep no session
}

// A Waker may end a wait before its time.
type Waker interface {
	// Woken receives when it does; the receiver then calls Spend.
	Woken() <-chan struct{}
	Spend()
	// Sleep waits for d, a wake-up, which it spends, or the end of ctx. It reports whether it was a wake-up.
	Sleep(ctx context.Context, d time.Duration) (woken bool)
	// Renew allows more wake-ups: a regular attempt is due.
	Renew()
}

// A Standing is what a candidate was by the last answer of a server.
type Standing int

const (
	Unknown  Standing = iota // there was no answer yet
	Followed                 // another candidate led
	Led
)

// An Outcome is how an attempt ended.
type Outcome int

const (
	Failed   Outcome = iota // Err says why
	Refused                 // as Failed, and no retry will help
	TooEarly                // as Failed, and after Next this candidate may lead
	Busy                    // another session holds the lock
	Granted                 // Lock is held
	Offered                 // busy, and its holder offers the lock to this candidate
)

// An Attempt is the result of one.
type Attempt struct {
	Outcome       Outcome
	Lock          *Lock
	WasOffered    bool   // the lock is held, and its last holder had offered it to this candidate
	Holder        Holder // of a busy lock, if the acquirer looks for it and saw it
	InTransaction bool   // in transaction scope
	Keeps         bool   // the lock is busy, and this candidate keeps a session to try it often
	// Next is how long to wait before the next attempt. After a failure it is the longest
	// time between two quick attempts while the server is away; 0 if the campaign does not
	// pace those.
	Next time.Duration
	Err  error
}

// Holder is a session that holds a lock, or waits for it. elector.Leader documents its
// fields.
type Holder struct {
	CandidateID string
	PID         int32
	User        string
	Addr        string
	SessionAt   time.Time
	Lease       time.Duration
	Scope       session.Scope
	ElectedAt   time.Time
	RenewedAt   time.Time
	AskedAt     time.Time
	Blocks      string // says that it does not lead, and keeps the lock from all candidates; "" of a leader
}

// Fail is the attempt that ended with err.
func Fail(source *session.Source, err error, next time.Duration) Attempt {
	if later, ok := errors.AsType[session.Later](err); ok {
		return Attempt{Outcome: TooEarly, Next: later.Later(), Err: err}
	}
	if source.Refuses(err) {
		return Attempt{Outcome: Refused, Next: next, Err: err}
	}
	return Attempt{Outcome: Failed, Next: next, Err: err}
}

// A Config is what an acquirer needs to know of its election.
type Config struct {
	Election     string // its name, for reports
	Key          int64
	ReportHolder func() bool // whether to ask who holds a busy lock
	Pair         int64       // the key of a lock of two integers that sessions may hold beside
	TokenEpoch   int64       // the least number that is added to the timeline of a token
	// Unblock ends what blocks the barrier of the key for longer than the lease. endless is what it cannot.
	Unblock func(ctx context.Context, s *session.Session, key int64, l lease.Lease) (endless, err error)
}
