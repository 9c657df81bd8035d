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
// run out, or the owner closes it. It knows nothing of elections. Any answered
// statement is as good as a heartbeat, and puts off the next one. The teardown
// is here and nowhere else: the cause is set first, so that every term ends
// before the connection is closed, which may take a while.
func (s *session) keep(onBeat func(beat)) {
	defer func() {
		s.discard()
		if s.watcher != nil {
			<-s.watcher
		}
		close(s.gone)
	}()
	for {
		if !s.valid() {
			s.cancel(s.expiry())
			return
		}
		due := s.lease.heartbeat - now().since(s.proven())
		if due > 0 && s.pause(due) {
			continue // to see what has come meanwhile: a freeze, another proof, the end
		}
		start := time.Now()
		if err := s.heartbeat(); err != nil {
			s.cancel(err)
			return
		}
		onBeat(beat{took: time.Since(start), deadline: s.deadline()})
	}
}

// pause waits and reports whether it waited to the end: not if the session is
// suspected to be lost.
func (s *session) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return true
	case <-s.suspect:
		return false
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
