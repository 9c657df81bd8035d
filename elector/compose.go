package elector

import (
	"context"
	"database/sql"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/deputy"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/inbox"
	"github.com/pgelector/pgelector/internal/listen"
	"github.com/pgelector/pgelector/internal/live"
	"github.com/pgelector/pgelector/internal/lockdelay"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/preference"
	"github.com/pgelector/pgelector/internal/preflight"
	"github.com/pgelector/pgelector/internal/queue"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/internal/syncrep"
	"github.com/pgelector/pgelector/internal/transaction"
)

// New makes a candidate for the election of that name, on a pool that the
// caller keeps and closes. It neither connects nor starts anything.
//
// The name must have 1 to 1024 bytes and no NUL. An argument or option that
// cannot be used is an error that wraps ErrConfig and says which; a pool whose
// MaxOpenConns is 1 is one too.
func New(pool *sql.DB, name string, opts ...Option) (*Elector, error) {
	if pool == nil {
		return nil, errNoPool
	}
	c, err := configure(name, opts)
	if err != nil {
		return nil, err
	}
	if err := pooled.CheckSize(pool, c.pins()); err != nil {
		return nil, err
	}
	e := newElector(context.Background(), pool, name, c)
	source, acquirer, scope := e.ownSource()
	e.found = scope
	e.elects(source, acquirer)
	return e, nil
}

func newElector(ctx context.Context, pool *sql.DB, name string, c config) *Elector {
	e := &Elector{candidate: newCandidate(pool, name, c), closed: make(chan struct{})}
	e.closing, e.close = context.WithCancelCause(ctx)
	e.validation = validation(c.validateInterval, func() []*Term { return []*Term{e.term.Load()} })
	return e
}

// holderScope is the scope that was chosen.
func (c *config) holderScope() holder.Scope {
	if c.shared || c.synchronous {
		return holder.SessionScope
	}
	return holder.Scope(c.scope)
}

// sessions are what sessions are like, and who receives their reports. more are parts that concern their elections.
func (c *config) sessions(to sources, more []election.Part) election.SessionConfig {
	parts := []election.Part{&preflight.Part{Scope: to.scope, Pins: c.pins()}, live.Part{}, transaction.Part{}, listen.Part{Deaf: to.scope.ListensForLoss}}
	parts = append(parts, more...)
	if c.delays {
		parts = append(parts, lockdelay.New(c.lockDelay, to.scope.InTransaction))
	}
	if c.prefer.chosen {
		parts = append(parts, &preference.Part{Priority: c.prefer.priority})
	}
	if c.synchronous {
		parts = append(parts, syncrep.New(c.longestLease))
	}
	parts = append(parts, beats{on: to.beat}, inbox.New(to.pool, to.hear, func(ctx context.Context, err error) { to.report(ctx, hooks.Failure{Op: hooks.OpRequest, Err: err}) }))
	return election.SessionConfig{CandidateID: c.candidateID, Lease: c.lease, TokenEpoch: c.tokenEpoch, Parts: parts, Report: to.failed}
}

// ownSource lends sessions of one election each. The acquirer makes its attempts on them.
func (e *Elector) ownSource() (*election.Source, *deputy.Acquirer, *preflight.Scope) {
	scope := preflight.NewScope(e.holderScope())
	d := deputy.New(deputy.Config{CandidateID: e.candidateID, Key: e.key, Sit: e.takeover != Poll, SitInside: e.sitsInside(), Wait: e.takeover == Wait,
		Interval: e.deputyInterval, Inside: scope.InTransaction, Wary: scope.MetStandby, Auto: scope.Chosen == holder.Auto})
	evict := pooled.Evictor{Locks: func(s *election.Session) (key, pair int64, ok bool) {
		return e.key, seat.Key(e.key), !transaction.IsOf(s)
	}}
	c := e.sessions(sources{pool: e.pool, scope: scope, beat: e.beat, hear: e.hear, report: e.report, met: e.past.met},
		[]election.Part{e.places, e.validation, d, evict})
	if c.Statements = d.Statements; e.takeover == Wait {
		c.Linger = queue.CloseDelay
	}
	return election.NewSource(e.pool, c), d, scope
}

// elects makes the election on a source.
func (e *Elector) elects(source *election.Source, acquirer election.Acquirer) {
	e.kernel = election.New(source, election.Config{Key: e.key, Look: e.announcer.seesLeader, Retry: e.retryEvery, Rest: 2 * pollRequest.Max, Sleep: e.sleep,
		Backoff: e.backoff, MaxAttempts: e.maxAttempts, AwaitPrimary: e.readOnlyTimeout, Acquirer: &attempts{e, acquirer}, Observer: observer{e},
		Terms: e.room, Meanwhile: e.findLeader, Yields: e.yields})
}

// sources are what the sessions of an elector, or of a Session, report to.
type sources struct {
	pool   *sql.DB
	scope  *preflight.Scope
	beat   func(election.Beat)
	hear   hearer
	report func(context.Context, hooks.Failure)
	met    *summit
}

// failed receives what goes wrong on sessions, and ends none.
func (s sources) failed(doing string, err error) {
	op := hooks.OpCampaign
	switch doing {
	case "try": // which the attempt itself reports
		s.scope.Suspect(err)
		if s.met != nil {
			s.met.meet(pgerr.NewerTimeline(err))
		}
		if live.IsSuspicious(err) {
			live.Suspect(s.pool)
		}
		return
	case "release":
		op = hooks.OpRelease
	case "set up":
		op = hooks.OpSetting
	case "call":
		op = hooks.OpCall
	}
	s.report(context.Background(), hooks.Failure{Op: op, Err: err})
}

// A beats announces heartbeats.
type beats struct {
	election.NoPart
	on func(election.Beat)
}

func (b beats) Beat(_ *election.Session, beat election.Beat) error {
	b.on(beat)
	return nil
}
