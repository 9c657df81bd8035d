// Package preflight checks, before an attempt, that a server can keep the promise, and in which scope.
package preflight

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/listen"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/internal/transaction"
	"github.com/pgelector/pgelector/internal/turn"
)

const oldestServer = 140000 // idle_session_timeout came with PostgreSQL 14

// A Part checks a server before the first attempt and again after a failure: can it keep the promise,
// and in which scope? It serves one Source.
type Part struct {
	session.NoPart
	refused      int       // transactions in a row, by a pooler that answers outside one
	refusedSince time.Time // the first
}

// Check comes before the lock: one that was granted through a transaction pooler would stay on a
// backend that strangers share.
func (p *Part) Check(ctx context.Context, from *session.Source) error {
	waiting, cancel := context.WithTimeoutCause(ctx, from.Lease.Validity(), fmt.Errorf("%w to others within %v", pgerr.ErrNoAnswer, from.Lease.Validity()))
	defer cancel()
	found, err := share(waiting, &transaction.Turns, from.Pool(), struct {
		session.Scope
		lease.Lease
		pins int
	}{from.Scope, from.Lease, from.Pins}, func() (found session.Finding, whole bool, err error) {
		if err = p.checkScope(ctx, from); err == nil {
			found.Deaf, err = listen.Try(ctx, from)
		}
		found.InTransaction = from.InTransaction()
		return found, from.HasAllSettings(), err
	})
	if err == nil {
		from.Passed(found)
	}
	return err
}

// poolerRepeats is how often a failure that may have another cause than a pooler must show again.
const poolerRepeats = 2

// checkServer checks the server, and on new connections again if statements were mixed up, or the
// protocol was violated (08P01): by a pooler that mixes clients up, or is full, or has lost a
// connection.
func (p *Part) checkServer(ctx context.Context, from *session.Source) error {
	for repeats := from.Pool().Stats().Idle/2 + poolerRepeats; ; repeats-- { // each discards two connections
		err := p.checkOnce(ctx, from)
		if repeats == 0 || !errors.Is(err, pgerr.ErrMixedUp) && pgerr.State(err) != "08P01" {
			return err
		}
	}
}

// checkOnce is one check, on two connections.
func (p *Part) checkOnce(ctx context.Context, from *session.Source) error {
	return from.LendIn(ctx, false, func(a *session.Session) error {
		if err := p.checkPrimary(ctx, from, a); err != nil {
			return err
		}
		return from.LendIn(ctx, false, func(b *session.Session) error {
			if err := p.checkPooler(ctx, from, a, b); err != nil {
				return fmt.Errorf("elector: check for a pooler: %w", err)
			}
			return nil
		})
	})
}

// checkPrimary returns nil if the session is on a primary that is new enough.
func (p *Part) checkPrimary(ctx context.Context, from *session.Source, s *session.Session) error {
	server, err := session.Describe(ctx, s)
	switch {
	case err != nil:
		return fmt.Errorf("elector: check the server: %w", pgerr.Explain(err))
	case server.VersionNum < oldestServer:
		return fmt.Errorf("%w: this is %s", pgerr.ErrServerTooOld, server.Version)
	case server.InRecovery:
		return pgerr.ErrServerReadOnly
	}
	s.Backend.Set(server.Pid, server.Started)
	from.ReachedPrimary()
	return nil
}

// turns are the questions to two connections, after one to each. A pooler gives each question a
// backend, and does not know which connection has its turn. Strangers may keep it from giving both
// the same one, but to miss it, the backends must come in just this order, which has no rhythm.
// With two backends at random one check in a million misses it, and half of a check, which is
// enough for a server that has passed one, one in a thousand.
const turns = "abaabbababbbbaabaaab"

// checkPooler asks two connections for their backends. If it is no pooler's, a connection reaches
// one backend, and the other does not. What the server counts or shows of a backend is no evidence:
// one begins transactions by itself, to catch up with changes of the catalog, or to notify. Then b
// tries the settings inside a transaction.
func (p *Part) checkPooler(ctx context.Context, from *session.Source, a, b *session.Session) error {
	more := turns
	if from.HasPassed() {
		more = turns[:len(turns)/2]
	}
	for _, turn := range "b" + more {
		s, other := a, b
		if turn == 'b' {
			s, other = b, a
		}
		server, err := session.Describe(ctx, s)
		switch {
		case err != nil:
			return pgerr.Explain(err)
		case other.Backend.Is(server.Pid, server.Started):
			return fmt.Errorf("%w: two connections reached backend %d", pgerr.ErrSessionPooled, server.Pid)
		case s.PID() != 0 && !s.Backend.Is(server.Pid, server.Started):
			return fmt.Errorf("%w: one connection reached backend %d, then %d", pgerr.ErrSessionPooled, s.PID(), server.Pid)
		}
		s.Backend.Set(server.Pid, server.Started)
	}
	err := transaction.Try(ctx, b, from.Settings)
	if pgerr.IsMixedUp(err) {
		err = transaction.Try(ctx, b, from.Settings) // the transaction has failed with it
	}
	if refusesSetting(err) {
		return p.dropRefusedSettings(ctx, from, b, session.LeaseSetting)
	}
	return pgerr.Explain(err)
}

// dropRefusedSettings tries each setting alone. It reports those that the platform refuses
// (client_connection_check_interval exists on Linux, macOS and the BSDs only), and leaves
// them out from now on. The one that is the lease must not be refused.
func (p *Part) dropRefusedSettings(ctx context.Context, from *session.Source, s *session.Session, lease string) error {
	var failed error
	from.Settings = slices.DeleteFunc(slices.Clone(from.Settings), func(one session.Setting) bool {
		if failed != nil {
			return false
		}
		err := transaction.Try(ctx, s, []session.Setting{one})
		switch {
		case err == nil:
			return false
		case !refusesSetting(err) || one.Name == lease:
			failed = fmt.Errorf("elector: check the session settings: %s: %w", one.Name, pgerr.Explain(err))
			return false
		}
		from.Report(ctx, session.SettingUp, fmt.Errorf("elector: the server refuses the setting %s = %s, which is left out: %w", one.Name, one.Value, err))
		return true
	})
	return failed
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
