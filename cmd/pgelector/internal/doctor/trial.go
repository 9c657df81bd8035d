package doctor

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// trialIf returns trial if the server is usable, or a check that says why not.
func (x *Examination) trialIf(usable bool, e *elector.Elector) func(context.Context) error {
	if usable {
		return func(ctx context.Context) error { return x.trial(ctx, e) }
	}
	return func(context.Context) error {
		x.say(note, "advisory locks", "not tried on this server")
		return nil
	}
}

// candidate returns the trial's elector, on a pool like a program's. It does not connect.
// It returns an error if the lease or the epoch is invalid.
func (x *Examination) candidate() (e *elector.Elector, closePool func(), err error) {
	pool, err := x.Target.Open(connect.Election)
	if err != nil {
		return nil, nil, err
	}
	closePool = func() { go pool.Close() } // lib/pq may hang
	refused := hooks.Funcs{Campaign: func(_ context.Context, e hooks.Campaign) { x.inside = e.InTransaction }, Error: func(_ context.Context, e hooks.Failure) {
		if e.Op == hooks.OpSetting {
			x.say(note, "settings", "%v", e.Err)
		}
	}}
	e, err = elector.New(pool, "pgelector doctor "+rand.Text(), elector.WithLease(x.Lease),
		elector.WithTokenEpoch(x.TokenEpoch), elector.WithHooks(refused))
	return e, closePool, err
}

// trial wins an election with a random name, verifies it, and resigns.
func (x *Examination) trial(ctx context.Context, e *elector.Elector) error {
	term, elected, err := e.TryCampaign(ctx)
	if err == nil && !elected {
		err = errors.New("another session holds the lock of a random name")
	}
	if err == nil {
		x.token = term.Token()
		err = errors.Join(term.Verify(ctx), term.Resign(ctx))
	}
	switch {
	case err == nil:
		scope := "session"
		if x.inside {
			scope = "transaction"
		}
		x.say(ok, "advisory locks", "real: a trial election was won in %s scope, verified in pg_locks, and resigned", scope)
	case errors.Is(err, elector.ErrSessionPooled) && x.failed > 0:
		x.say(note, "advisory locks", "unreliable through this pooler")
	case errors.Is(err, elector.ErrLockTableFull):
		x.say(fail, "advisory locks", "the lock table is full: raise max_locks_per_transaction and restart the server")
	case errors.Is(err, elector.ErrTokenEpoch):
		x.say(fail, "token", "%v", err)
	default:
		x.say(fail, "advisory locks", "the trial election failed: %v", err)
	}
	return nil
}
