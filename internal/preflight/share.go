package preflight

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/internal/turn"
)

// A passed is the last check of a pool that passed.
type passed struct {
	what  any       // was checked
	began time.Time // when
	found session.Finding
}

// share calls check, alone on the pool. If an equal check began and passed while share waited, it
// returns that finding: two hundred candidates that start at once ask the server little more than one
// would. A finding is shared if the server took all settings: others need not find out which it refuses.
func share(ctx context.Context, queues *turn.Queues, pool *sql.DB, what any, check func() (found session.Finding, whole bool, err error)) (session.Finding, error) {
	asked := time.Now()
	its, leave, err := queues.Take(ctx, pool)
	if err != nil {
		return session.Finding{}, fmt.Errorf("elector: wait to check the server: %w", err)
	}
	defer leave()
	if last, ok := its.Shared.(passed); ok && last.what == what && last.began.After(asked) {
		return last.found, nil
	}
	began := time.Now()
	its.Shared = nil
	found, whole, err := check()
	if err == nil && whole {
		its.Shared = passed{what, began, found}
	}
	return found, err
}
