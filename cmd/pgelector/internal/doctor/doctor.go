// Package doctor checks that a database can run elections safely, through the connection that a
// program would use. Examination.run lists the checks.
package doctor

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// DefaultLease is the library's.
const DefaultLease = 10 * time.Second

// Examination is one run of all checks.
type Examination struct {
	Target  *connect.Target
	Out     io.Writer
	Log     io.Writer     // says after a while that the server has not answered
	JSON    bool          // write one JSON object, not a line for each finding
	Report  string        // the file for a report without secrets; empty for none
	Timeout time.Duration // of each question
	Lease   time.Duration

	TokenEpoch int   // of the candidates
	LastToken  int64 // the largest that a store has seen; 0 if unknown
	Elections  int64 // whose need of connections to show

	pool       *sql.DB // for questions
	token      int64   // of the trial election; 0 if it failed
	inside     bool    // the trial was in transaction scope
	stubs      bool    // because locks of sessions do nothing here
	statements bool    // a pooler refuses transactions
	listens    bool    // the trial's leader was told of the loss of its session
	unfenced   error   // of InTx in the trial
	patroni    bool    // manages failovers
	direct     bool    // the server answers directly
	pooled     bool    // a pooler answers; neither is known of lib/pq
	role       string  // of the connection
	found      []finding
	can        []capability  // what the server can do
	worst      time.Duration // the longest round trip

	mu      sync.Mutex // of what the hooks of the trial hear
	final   bool       // no retry of it will succeed
	refused []error    // settings

	recommended time.Duration // lease; 0 if elections cannot run safely
}

func (x *Examination) run(ctx context.Context) (err error) {
	if x.pool, err = x.Target.Open(connect.Inspection); err != nil {
		return err
	}
	defer func() { go x.pool.Close() }() // lib/pq may hang
	candidate, closePool, err := x.candidate()
	if err != nil {
		return err
	}
	defer closePool()
	if err := x.Target.Check(ctx, x.pool, x.Timeout); err != nil {
		text := "failed: see below"
		if x.JSON {
			text = err.Error()
		}
		x.say(fail, connectionCheck, "%s", text)
		return err
	}
	x.say(ok, connectionCheck, "%s, driver %s, found by %s", x.Target, x.Target.Driver, x.Target.Source)
	x.connecting(ctx)
	server, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (db.DescribeServerRow, error) { return q.DescribeServer(ctx) })
	if err != nil {
		return err
	}
	usable := x.server(server)
	for _, check := range []func(context.Context) error{x.pooler, x.trialIf(usable, candidate), x.tokenParts, x.settings, x.privileges, x.capacity, x.elections, x.roundTrips, x.clocks, x.around, x.host, x.probeIf(server, usable)} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	x.conclude()
	x.recommend()
	return nil
}

// question asks the server. It returns after the timeout, even if the driver does not.
func question[T any](ctx context.Context, x *Examination, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, x.Timeout, fmt.Errorf("no answer within %v", x.Timeout))
	defer cancel()
	return ask.Server(ctx, x.pool, call)
}

// trialIf returns trial if the server is usable, or a check that says why not.
func (x *Examination) trialIf(usable bool, e *elector.Elector) func(context.Context) error {
	if usable {
		return func(ctx context.Context) error { return x.trial(ctx, e) }
	}
	return func(context.Context) error {
		x.mode(errors.New("not tried"))
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
	refused := hooks.Funcs{Error: func(_ context.Context, e hooks.Failure) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.final = e.Permanent; e.Op == hooks.OpSetting {
			x.refused = append(x.refused, e.Err)
		}
	}}
	e, err = elector.New(pool, "pgelector doctor "+rand.Text(), elector.WithLease(x.Lease),
		elector.WithTokenEpoch(x.TokenEpoch), elector.WithHooks(refused))
	return e, closePool, err
}

// isFinal reports whether no retry of the trial will succeed.
func (x *Examination) isFinal() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.final
}

// certain is how long a pooler may refuse transactions before it is known to be in statement mode.
const certain = 15 * time.Second

// trial wins an election with a random name, verifies it, and resigns.
func (x *Examination) trial(ctx context.Context, e *elector.Elector) error {
	term, elected, err := e.TryCampaign(ctx)
	for began := time.Now(); ask.IsRefusal(err) && !x.isFinal() && time.Since(began) < certain && ask.Sleep(ctx, time.Second); {
		term, elected, err = e.TryCampaign(ctx)
	}
	x.inside = e.Settings().Scope == elector.TransactionScope
	if x.inside {
		x.stubs = x.sessionLocksAreStubs(ctx)
	}
	x.mode(err)
	if err == nil && !elected {
		err = errors.New("another session holds the lock of a random name")
	}
	if err == nil {
		x.token = term.Token()
		err = term.Verify(ctx)
		x.fenced(ctx, term)
		err = errors.Join(err, term.Resign(ctx)) // which waits for the hooks
		x.listens = e.Settings().ListensForLoss
	}
	x.mu.Lock()
	for _, why := range x.refused {
		x.say(note, "settings", "%v", why)
	}
	x.mu.Unlock()
	switch {
	case err == nil:
		scope := "session"
		if x.inside {
			scope = "transaction"
		}
		if x.stubs {
			x.say(warn, "advisory locks", "those of sessions do nothing here: NewSession and WithSynchronousStandby do not work")
		}
		x.say(ok, "advisory locks", "real: a trial election was won in %s scope, verified in pg_locks, and resigned", scope)
		x.trialParts()
	case errors.Is(err, elector.ErrSessionPooled) && !x.Healthy():
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
