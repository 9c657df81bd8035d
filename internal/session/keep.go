package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// Beat is one answered heartbeat.
type Beat struct {
	Took     time.Duration
	Deadline time.Time // until when it prolongs the validity
}

// keep is the session's life: heartbeats until one fails, or the validity has
// run out, or the owner closes it. It knows nothing of elections. Any answered
// statement is as good as a heartbeat, and puts off the next one. The teardown
// is here and nowhere else: the cause is set first, so that every term ends
// and its work can return before the connection is closed.
func (s *Session) keep(onBeat func(Beat)) {
	defer func() {
		s.awaitUsers()
		s.discard()
		if s.watcher != nil {
			<-s.watcher
		}
		if s.commits != nil {
			<-s.commits.gone
		}
		close(s.gone)
	}()
	var asked time.Time // when a suspicion last had a heartbeat sent
	for {
		if !s.Valid() {
			s.cancel(s.Expiry())
			return
		}
		due := s.lease.Heartbeat - s.now().since(*s.proof.Load())
		if due > 0 && s.pause(min(due, s.left()), &asked) {
			continue // to see what has come meanwhile: a freeze, another proof, the end
		}
		start := time.Now()
		if err := s.heartbeat(); err != nil {
			s.cancel(err)
			return
		}
		if other := s.met.Swap(nil); other != nil && s.compare(s.ctx, *other) != nil {
			return
		}
		onBeat(Beat{Took: time.Since(start), Deadline: s.Deadline()})
	}
}

// pause waits and reports whether it waited to the end: not if the session is
// suspected to be lost, and the last suspicion was long enough ago.
func (s *Session) pause(d time.Duration, asked *time.Time) bool {
	end := time.After(d)
	select {
	case <-end:
		return true
	case <-s.ctx.Done():
		return true
	case <-s.suspect:
	}
	select {
	case <-end:
		return true
	case <-s.ctx.Done():
		return true
	case <-time.After(time.Until(asked.Add(suspectEvery))):
		*asked = time.Now()
		return false
	}
}

// heartbeat proves that the session lives. Its timeout is the validity that is
// left. There is no second try: a connection on which a statement failed is of
// no use, and one whose context ended has been closed by the driver.
func (s *Session) heartbeat() error {
	ping, err := do(s.ctx, s, func(ctx context.Context, q *db.Queries) (db.PingRow, error) { return q.Ping(ctx) })
	switch {
	case errors.Is(err, ErrLeaseExpired):
		return fmt.Errorf("%w: the heartbeat was not answered: %w", s.Expiry(), err)
	case err != nil:
		return pgerr.Wrap(ErrSessionLost, err)
	case ping.Pid != s.pid:
		return fmt.Errorf("%w: another backend answers (%d, not %d): %w", ErrSessionLost, ping.Pid, s.pid, ErrSessionPooled)
	case ping.InRecovery:
		return fmt.Errorf("%w: the server was demoted: %w", ErrSessionLost, ErrServerReadOnly)
	}
	return nil
}

// Context is done when the session has ended; its cause says why.
func (s *Session) Context() context.Context { return s.ctx }

// TermContext is done when no term may go on: the session has ended, or will, because
// commits do not wait for the standbys any more. Its cause says why.
func (s *Session) TermContext() context.Context { return s.termCtx }

// PID is the process id of the session's backend.
func (s *Session) PID() int32 { return s.pid }

// lose ends the session because of err, which leaves in doubt what it holds, and
// returns the cause.
func (s *Session) lose(err error) error {
	err = pgerr.Wrap(ErrSessionLost, err)
	s.cancel(err)
	return err
}

// Close ends the session, unless it has ended, and waits until its connection is
// gone, or left alone.
func (s *Session) Close() {
	s.cancel(errClosed)
	<-s.gone
}
