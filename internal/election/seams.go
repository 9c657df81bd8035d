package election

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/internal/pin"
)

// A Part is a feature. The kernel calls a part at seven places. An error refuses, or ends, what goes on there.
type Part interface {
	// Check is called before an attempt, if the server must be checked: at first, and after a failure. May the server elect
	// anybody?
	Check(ctx context.Context, from *Source) error

	// Lent is called with each session that is lent, before its first try. After an error the session is discarded.
	Lent(ctx context.Context, s *Session) error

	// Kept is called before each attempt on a session that an acquirer keeps: may the session still be used? After an error
	// the session is discarded.
	Kept(ctx context.Context, s *Session) error

	// Granted is called when a lock is confirmed, and before anybody knows of the lock: may a term begin? If several locks
	// are confirmed, Granted is called for each. An error discards a session that was made for this lock, and refuses one
	// lock of a session that has others.
	Granted(ctx context.Context, s *Session, g Grant) error

	// Started is called when the session begins to be kept alive. Session.Go runs what is to go on beside the session.
	Started(s *Session)

	// Beat is called after each answered heartbeat, on the session's goroutine. An error ends the terms. The session keeps
	// its locks until their work has returned.
	Beat(s *Session, b Beat) error

	// Ended is called once, at the end of each session that was lent, before its connection is given up.
	Ended(s *Session, cause error)
}

// A Grant is a lock that the server has granted and that pg_locks shows.
type Grant struct {
	Key      int64
	Timeline int64 // of the server
}

// A Beat is one answered heartbeat.
type Beat struct {
	Took     time.Duration
	Deadline time.Time // the heartbeat prolongs the validity until then
	Rung     bool      // somebody may have a request to the session
}

// NoPart does nothing. A part embeds NoPart, and overrides the methods that the part needs.
type NoPart struct{}

func (NoPart) Check(context.Context, *Source) error           { return nil }
func (NoPart) Lent(context.Context, *Session) error           { return nil }
func (NoPart) Kept(context.Context, *Session) error           { return nil }
func (NoPart) Granted(context.Context, *Session, Grant) error { return nil }
func (NoPart) Started(*Session)                               {}
func (NoPart) Beat(*Session, Beat) error                      { return nil }
func (NoPart) Ended(*Session, error)                          {}

// Statements asks the server for one session, and reports what the server answered. A value of Statements decides nothing and
// keeps no time: it sees the connection and never the Session. The kernel makes each call, judges each answer, and renews the
// proof that the session lives. Each method is called within one call, so it may send several statements. A call may be
// repeated if the driver lost a prepared statement. An error that wraps pgerr.ErrSessionLost says that the locks are gone.
// Another error of a statement says nothing about the session.
type Statements interface {
	// Open prepares a connection that was lent, before the parts hear of the session. So the questions of parts reach the
	// server that the first try will reach.
	Open(ctx context.Context, c *pin.Conn, settings []Setting) (Answer, error)

	// Try tries locks, and returns one result for each want, in order. If a lock is granted, the same statement applies the
	// settings, unless Open has applied them: the lease is one of the settings.
	Try(ctx context.Context, c *pin.Conn, settings []Setting, wants []Want) ([]Tried, Answer, error)

	// Confirm looks for locks in pg_locks, passes their barriers, and makes their tokens. It returns one result for each key,
	// in order.
	Confirm(ctx context.Context, c *pin.Conn, keys []int64) ([]Confirmed, Answer, error)

	// Aside asks a question of a part, so that a refusal of the server (refused) costs the session nothing. err says what
	// became of the session.
	Aside(ctx context.Context, c *pin.Conn, ask func() error) (refused, err error)

	// Beat is a heartbeat. rung says that somebody may have a request to the session.
	Beat(ctx context.Context, c *pin.Conn) (rung bool, a Answer, err error)

	// Holds asks whether the session holds a lock.
	Holds(ctx context.Context, c *pin.Conn, key int64) (held bool, a Answer, err error)

	// Unlock releases locks, and returns the keys of the locks that the session held.
	Unlock(ctx context.Context, c *pin.Conn, keys []int64) (released []int64, err error)

	// Close undoes Open, before an unchanged connection goes back to the pool (keep), or after the connection was closed. If the
	// driver does not return from a call, Close is called beside that call.
	Close(ctx context.Context, c *pin.Conn, keep bool) error
}

// An Answer shows who has answered. The zero Answer names nobody, and proves nothing.
type Answer struct {
	PID        int32  // of the backend
	Mark       string // of the transaction that has the locks, which only the transaction knows; "" in session scope
	InRecovery bool
}

// A Want is a lock to be tried.
type Want struct {
	Key  int64
	Look bool // whether to report who holds a busy lock
}

// A Tried is the answer to a Want.
type Tried struct {
	Granted bool
	Perhaps bool   // the server may have granted the lock: only Confirm tells
	Keep    bool   // the lock is busy, and the session was granted something else that makes it worth keeping
	Holder  Holder // of a busy lock, if the want says Look
	Err     error  // of this lock alone
}

// A Holder is a session that holds the lock.
type Holder struct {
	CandidateID string
	PID         int32
}

// A Confirmed is the answer about one lock.
type Confirmed struct {
	Held   bool
	Passed bool   // the barrier; false if a fenced transaction of an earlier term still goes on
	Token  int64  // timeline and transaction id
	Epoch  string // the setting pgelector.epoch of the database
	Err    error  // of this lock alone
}

// An Acquirer makes the attempts of one election. Without an acquirer each attempt is Election.Attempt. An acquirer chooses
// when to try, and on which session. Whatever it returns, a term begins only with a lock of that election that is confirmed.
type Acquirer interface {
	// Acquire makes one attempt.
	Acquire(ctx context.Context, e *Election) Attempt

	// Close gives up what the acquirer keeps between two attempts. It is called when a campaign ends without a lock.
	Close()
}

// An Observer is told what happens, in order. Its methods return soon. What they do changes nothing.
type Observer interface {
	Attempted(a Attempt)
	Elected(t *Term)
	Ended(t *Term, cause error)   // the work may go on
	Demoted(t *Term, cause error) // the work has returned, and the lock is still held
	Released(t *Term)             // the lock is given up; the next campaign has not begun
	Failed(doing string, err error)
}

// A Bound limits the validity of a session beside its lease, as the acknowledgement of synchronous standbys may. The validity
// is the least of all bounds, so a bound can only shorten a term.
type Bound interface {
	Left() time.Duration // by the clocks at the time of the call
	Expiry() error       // why nothing is left
}

// A Later is an error that says when an attempt may succeed. Parts return it.
type Later interface {
	error
	Later() time.Duration // from now
}

// An Again is an error after which a new attempt, made at once, goes another way. Parts and answerers return it.
type Again interface {
	error
	Again()
}

// each calls the parts until one returns an error.
func each(parts []Part, call func(Part) error) error {
	for _, part := range parts {
		if err := call(part); err != nil {
			return err
		}
	}
	return nil
}
