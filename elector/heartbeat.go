package elector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
)

// errClosed ends a session that its owner has done with.
var errClosed = errors.New("elector: the session was closed")

// beat is one answered heartbeat.
type beat struct {
	took     time.Duration
	deadline time.Time
}

// keep is the session's life: heartbeats until one fails, or the validity has
// run out, or the owner closes it. It knows nothing of elections. Its teardown
// is the only one: the cause is set first, so that every term ends before the
// connection is closed, which may take a while.
func (s *session) keep(onBeat func(beat)) {
	defer close(s.gone)
	defer s.discard()
	for {
		if !s.valid() {
			s.cancel(s.expiry())
			return
		}
		pause := s.lease.heartbeat - now().since(s.proven())
		if !sleep(s.ctx, max(pause, 0)) {
			return
		}
		if !s.valid() { // frozen meanwhile, or the machine slept
			continue
		}
		start := time.Now()
		if err := s.heartbeat(); err != nil {
			s.cancel(err)
			return
		}
		onBeat(beat{took: time.Since(start), deadline: s.deadline()})
	}
}

// heartbeat proves that the session lives. Its timeout is the validity that is
// left. There is no second try: a connection on which a statement failed is of
// no use, and one whose context ended has been closed by the driver.
func (s *session) heartbeat() error {
	ping, err := do(s.ctx, s, func(ctx context.Context, q *db.Queries) (db.PingRow, error) { return q.Ping(ctx) })
	switch {
	case errors.Is(err, ErrLeaseExpired):
		return fmt.Errorf("%w: the heartbeat was not answered: %w", s.expiry(), err)
	case err != nil:
		return because(ErrSessionLost, err)
	case ping.Pid != s.pid:
		return fmt.Errorf("%w: another backend answers (%d, not %d): %w", ErrSessionLost, ping.Pid, s.pid, ErrSessionPooled)
	case ping.InRecovery:
		return fmt.Errorf("%w: the server was demoted: %w", ErrSessionLost, ErrServerReadOnly)
	}
	return nil
}

// expiry says that the validity has run out.
func (s *session) expiry() error {
	return fmt.Errorf("%w: last proof of the session %v ago, valid for %v of the lease of %v", ErrLeaseExpired,
		now().since(s.proven()).Round(time.Millisecond), s.lease.validity(), s.lease.length)
}

// deadline is when the validity runs out unless a heartbeat extends it.
func (s *session) deadline() time.Time { return s.proven().at.Add(s.lease.validity()) }

// close ends the session and waits until its connection is gone or left alone.
func (s *session) close() {
	s.cancel(errClosed)
	<-s.gone
}
