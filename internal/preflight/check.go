// Package preflight checks, before an attempt, that a server can keep the promise, and in which scope.
package preflight

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/listen"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/transaction"
)

const oldestServer = 140000 // idle_session_timeout came with PostgreSQL 14

// A Part checks a server before the first attempt and again after a failure: can it keep the promise,
// and in which scope? It serves one Source.
type Part struct {
	election.NoPart
	Scope        *Scope
	Pins         int              // connections that a session pins
	refused      int              // transactions in a row, by a pooler that answers outside one
	refusedSince time.Time        // the first
	whole        bool             // the server takes all settings
	elsewhere    bool             // the check has met a connection that leads elsewhere
	pooler       bool             // found, which is why sessions are inside transactions
	leftOut      map[string]error // the settings that the last check has left out, and reported
}

// Check comes before the lock: one that was granted through a transaction pooler would stay on a
// backend that strangers share.
func (p *Part) Check(ctx context.Context, from *election.Source) error {
	if err := pooled.CheckSize(from.Pool(), p.Pins); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, from.Lease.Validity(), fmt.Errorf("%w to others within %v", pgerr.ErrNoAnswer, from.Lease.Validity()))
	defer cancel()
	from.LeaveOut() // another server may take all settings, and so may this one
	p.whole, p.elsewhere = true, false
	found, err := share(waiting, &transaction.Turns, from.Pool(), struct {
		holder.Scope
		lease.Lease
		pins int
	}{p.Scope.Chosen, from.Lease, p.Pins}, func() (found finding, whole bool, err error) {
		found.deaf, err = p.checkScope(ctx, from)
		found.inTransaction, found.metStandby, found.pooled = p.Scope.InTransaction(), p.elsewhere, p.pooler
		if err == nil && p.whole {
			p.leftOut = nil
		}
		return found, p.whole, err
	})
	switch {
	case err == nil:
		p.pooler = found.pooled
		p.Scope.passed(found)
	case isBadDSN(err) && !from.HasPassed(): // else the string was read before, and may be mended
		err = pgerr.Wrap(errBadDSN, err)
	}
	return err
}

// Kept returns an error if the pool was closed.
func (p *Part) Kept(_ context.Context, s *election.Session) error {
	return pooled.CheckOpen(s.Source().Pool())
}

// Beat ends the terms if the pool was closed. The session goes on, so that they end in order.
func (p *Part) Beat(s *election.Session, _ election.Beat) error {
	return pooled.CheckOpen(s.Source().Pool())
}

// Ended has the next check try transaction scope, if a session was moved to another backend.
func (p *Part) Ended(_ *election.Session, cause error) { p.Scope.Suspect(cause) }

// poolerRepeats is how often a failure that may have another cause than a pooler must show again.
const poolerRepeats = 2

// checkServer checks the server, on two connections; and on new ones again if statements were mixed up, or the
// protocol was violated (08P01): by a pooler that mixes clients up, or is full, or has lost a
// connection. deaf says why its connections cannot be waited on.
func (p *Part) checkServer(ctx context.Context, from *election.Source) (deaf, err error) {
	for repeats := from.Pool().Stats().Idle/2 + poolerRepeats; ; repeats-- { // each discards two connections
		err = p.onPrimary(ctx, from, func(a *probe) error {
			return p.onPrimary(ctx, from, func(b *probe) error { return p.checkPooler(ctx, from, a, b) })
		})
		if err == nil {
			err = p.passOver(func() error {
				deaf, err = listen.Before(ctx, conns(ctx, from), func(c *pin.Conn) error { return p.checkSettings(ctx, from, &probe{conn: c, from: from}) })
				return err
			})
		}
		if repeats == 0 || !errors.Is(err, pgerr.ErrMixedUp) && pgerr.State(err) != "08P01" {
			return deaf, err
		}
	}
}

// isElsewhere reports whether an error says that a connection leads to another server than the primary. A pool
// may lead to a primary and its standbys in turn, and what one of them answers says nothing about the others:
// another connection is asked.
func (p *Part) isElsewhere(err error) bool {
	is := errors.Is(err, pgerr.ErrServerReadOnly) || errors.Is(err, transaction.ErrTwoServers)
	p.elsewhere = p.elsewhere || is
	return is
}

// conns lends connections.
func conns(ctx context.Context, from *election.Source) func(func(*pin.Conn) error) error {
	return func(fn func(*pin.Conn) error) error {
		return outside(ctx, from, func(p *probe) error { return fn(p.conn) })
	}
}

// passOver calls lend for other connections while they lead elsewhere.
func (p *Part) passOver(lend func() error) (err error) {
	for range transaction.MaxServers {
		if err = lend(); !p.isElsewhere(err) {
			break
		}
	}
	return err
}

// onPrimary lends fn a connection to a primary.
func (p *Part) onPrimary(ctx context.Context, from *election.Source, fn func(*probe) error) error {
	for n := 1; ; n++ {
		found := false
		err := outside(ctx, from, func(s *probe) error {
			if err := p.checkPrimary(ctx, from, s); err != nil {
				return err
			}
			found = true
			return fn(s)
		})
		if found || !p.isElsewhere(err) || n == transaction.MaxServers {
			return err
		}
	}
}

// checkPrimary returns nil if the session is on a primary that is new enough.
func (p *Part) checkPrimary(ctx context.Context, from *election.Source, s *probe) error {
	server, err := s.describe(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("elector: check the server: %w", pgerr.Explain(err))
	case server.VersionNum < oldestServer:
		return fmt.Errorf("%w: this is %s", pgerr.ErrServerTooOld, server.Version)
	case server.InRecovery:
		return pgerr.ErrServerReadOnly
	}
	s.pid, s.started = server.Pid, server.Started
	from.ReachedPrimary()
	return nil
}

// turns are the questions to two connections, after one to each. A pooler gives each question a
// backend, and does not know which connection has its turn. Strangers may keep it from giving both
// the same one, but to miss it, the backends must come in just this order, which has no rhythm.
// With two backends at random one check in a million misses it, and half of a check, which is
// enough for a server that has passed one, one in a thousand.
const turns = "abaabbababbbbaabaaab"

// checkPooler asks two connections for their backends, of which each has told one. If it is no pooler's, a
// connection reaches one backend, and the other does not. What the server counts or shows of a backend is no
// evidence: one begins transactions by itself, to catch up with changes of the catalog, or to notify.
func (p *Part) checkPooler(ctx context.Context, from *election.Source, a, b *probe) error {
	if a.is(b.pid, b.started) {
		return reachedBoth(b.pid)
	}
	more := turns
	if from.HasPassed() && !p.pooler {
		more = turns[:len(turns)/2]
	}
	for _, turn := range more {
		s, other := a, b
		if turn == 'b' {
			s, other = b, a
		}
		server, err := s.describe(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("elector: check for a pooler: %w", pgerr.Explain(err))
		case other.is(server.Pid, server.Started):
			return reachedBoth(server.Pid)
		case !s.is(server.Pid, server.Started):
			return fmt.Errorf("%w: one connection reached backend %d, then %d", pgerr.ErrSessionPooled, s.pid, server.Pid)
		}
	}
	return nil
}

func reachedBoth(pid int32) error {
	return fmt.Errorf("%w: two connections reached backend %d", pgerr.ErrSessionPooled, pid)
}

// checkSettings tries the settings inside a transaction.
func (p *Part) checkSettings(ctx context.Context, from *election.Source, s *probe) error {
	err := s.try(ctx, from.Settings())
	if pgerr.IsMixedUp(err) {
		err = s.try(ctx, from.Settings()) // the transaction has failed with it
	}
	if refusesSetting(err) {
		return p.dropRefusedSettings(ctx, from, s, "idle_session_timeout")
	}
	return pgerr.Explain(err)
}

// dropRefusedSettings tries each setting alone. It leaves out those that the platform refuses
// (client_connection_check_interval exists on Linux, macOS and the BSDs only), until the next check,
// and reports them once. The one that is the lease must not be refused. A server in recovery refuses
// transactions, and no setting.
func (p *Part) dropRefusedSettings(ctx context.Context, from *election.Source, s *probe, lease string) error {
	refused := map[string]error{}
	for _, one := range from.Settings() {
		err := s.try(ctx, []election.Setting{one})
		switch {
		case err == nil:
		case !refusesSetting(err) || one.Name == lease:
			return fmt.Errorf("elector: check the session settings: %s: %w", one.Name, pgerr.Explain(err))
		default:
			refused[one.Name] = fmt.Errorf("elector: the server refuses the setting %s = %s, which is left out: %w", one.Name, one.Value, err)
		}
	}
	if err := p.checkPrimary(ctx, from, s); err != nil {
		return err
	}
	for name, err := range refused {
		if p.leftOut[name] == nil {
			from.Report("set up", err)
		}
	}
	from.LeaveOut(slices.Collect(maps.Keys(refused))...)
	p.whole, p.leftOut = len(refused) == 0, refused
	return nil
}

// refusesSetting reports whether the server refused a session setting, and not the
// session: an invalid value, a lack of rights, one that cannot be changed now, one that is
// not supported, or an unknown name.
func refusesSetting(err error) bool {
	refusals := []string{"22023", "42501", "55P02", "0A000", "42704"}
	return slices.Contains(refusals, pgerr.State(err)) && !errors.Is(err, pgerr.ErrServerReadOnly)
}

// A passed is the last check of a pool that passed.
type passed struct {
	what  any       // was checked
	began time.Time // when
	found finding
}

// share calls check, alone on the pool. If an equal check began and passed while share waited, it
// returns that finding: two hundred candidates that start at once ask the server little more than one
// would. A finding is shared if the server took all settings: others need not find out which it refuses.
func share(ctx context.Context, queues *pooled.Queues, pool *sql.DB, what any, check func() (found finding, whole bool, err error)) (finding, error) {
	asked := time.Now()
	its, leave, err := queues.Take(ctx, pool)
	if err != nil {
		return finding{}, fmt.Errorf("elector: wait to check the server: %w", err)
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
