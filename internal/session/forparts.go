package session

import (
	"context"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pin"
)

// What only parts call.

// Along has run called on a goroutine of its own, from Start to soon after the session's end.
func (s *Session) Along(run func()) { s.life.companions = append(s.life.companions, run) }

// EvictBy sets what terminates the backend if the session was moved from it.
func (s *Session) EvictBy(evict func()) { s.evict = evict }

// EndTerms ends the terms, while the session goes on until their work has returned.
func (s *Session) EndTerms(why error) { s.life.endTerms(why) }

// Set records the backend that has answered, and when its server started.
func (b *Backend) Set(pid int32, started string) {
	b.pid = pid
	b.serverStarted.Store(started)
}

// Is reports whether the session was last on that backend.
func (b *Backend) Is(pid int32, started string) bool { return b.pid == pid && b.started() == started }

// SetMark records when the server started, and the mark of the session's transaction, which only the
// transaction itself shows.
func (b *Backend) SetMark(started, mark string) {
	b.serverStarted.Store(started)
	b.mark = mark
}

// Mark is what SetMark has recorded.
func (b *Backend) Mark() (started, mark string) { return b.started(), b.mark }

// ServerStart is when the session's server started. The server is asked once.
func (s *Session) ServerStart(ctx context.Context) (started string, err error) {
	if started := s.Backend.started(); started != "" {
		return started, nil
	}
	started, err = Do(ctx, s, (*db.Queries).ServerStart)
	s.Backend.serverStarted.Store(started)
	return started, err
}

// Prepare prepares the statements, of one row each. They then cost one round trip with any
// driver, and are not planned again. Inside a transaction it does nothing: they would
// outlive it.
func (s *Session) Prepare(ctx context.Context, statements ...string) error {
	if s.InTransaction() {
		return nil
	}
	_, err := s.call(ctx, false, nil, func(ctx context.Context, _ *db.Queries) error { return s.pin.Prepare(ctx, statements...) }, nil)
	return err
}

// AtEnd has end called before the connection is given back or closed.
func (s *Session) AtEnd(end func()) { s.life.atEnd = append(s.life.atEnd, end) }

// Go runs beside the session what soon returns after its end. Discard waits for it.
func (s *Session) Go(run func()) { s.life.helpers.Go(backoff.Apart(run)) }

// PingDriver sends a statement that no driver prepares.
func PingDriver(ctx context.Context, s *Session) error {
	_, err := s.Simple().Call(ctx, func(ctx context.Context, _ *db.Queries) error { return s.pin.Ping(ctx) }, nil)
	return err
}

// Describe asks the session what its server is. It returns an error if other code has left a
// transaction open.
func Describe(ctx context.Context, s *Session) (db.DescribeServerRow, error) {
	row, err := Do(ctx, s.Fresh(), (*db.Queries).DescribeServer)
	if err == nil {
		err = s.CheckOutside(row.InTransaction)
	}
	return row, err
}

// SetOwner is for the part that lends the session.
func (s *Session) SetOwner(o Owner) { s.owner = o }

// Pin is the connection, for within a call of the session. Its Listen and Raw are for outside one.
func (s *Session) Pin() *pin.Conn { return s.pin }

// A PerSession is what a part keeps of each session, for as long as anybody has the session: what it
// knows is needed by functions that are called at its end. The zero value is ready. It must not be copied.
type PerSession[T any] struct{ _ byte } // not empty: its address is the key in Session.kept

// Of returns what is kept of the session. Any goroutine may call it.
func (p *PerSession[T]) Of(s *Session) *T {
	of, ok := s.kept.Load(p)
	if !ok {
		of, _ = s.kept.LoadOrStore(p, new(T))
	}
	return of.(*T)
}
