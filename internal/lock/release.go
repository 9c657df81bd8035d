package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

// unhurried is how long a new leader has its session to itself.
const unhurried = 100 * time.Millisecond

// PrepareRelease prepares the release of a lock for which another session will wait in the server.
// Unprepared, it takes one round trip more. Measured: a hand-over then takes 1.9 ms, not 1.6.
func PrepareRelease(s *session.Session) {
	if backoff.Sleep(s.Context(), unhurried) {
		_ = s.Prepare(s.Context(), db.Unlock) // if that fails, so does a heartbeat
	}
}

// Unlock releases one or more locks of the session. It waits as long as the session is
// valid. It returns nil only if the session held them; otherwise the session is lost. key is
// one of them.
func Unlock(s *session.Session, key int64, call func(context.Context, *db.Queries) (held bool, err error)) error {
	held, err := session.Do(context.Background(), s, call)
	if err == nil && !held {
		err = cmp.Or(moved(s, key), errors.New("the session did not hold the lock"))
	}
	if err != nil {
		return s.Lose(fmt.Errorf("unlock: %w", err))
	}
	return nil
}

// moved returns an error if the session was moved away from a lock that it has not
// found.
func moved(s *session.Session, key int64) error {
	if s.InTransaction() {
		return nil
	}
	held, err := Holds(context.Background(), s, key)
	if err == nil && held { // it is back
		return pgerr.ErrSessionPooled
	}
	return err
}
