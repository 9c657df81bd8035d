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
	"github.com/pgelector/pgelector/internal/lock"
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
	refused      int              // transactions in a row, by a pooler that answers outside one
	refusedSince time.Time        // the first
	found        bool             // a pooler, which is why sessions are inside transactions
	leftOut      map[string]error // the settings that the last check has left out, and reported
	elsewhere    bool             // the check has met a connection that leads elsewhere
}

// Check comes before the lock: one that was granted through a transaction pooler would stay on a
// backend that strangers share.
func (p *Part) Check(ctx context.Context, from *session.Source) error {
	waiting, cancel := context.WithTimeoutCause(ctx, from.Lease.Validity(), fmt.Errorf("%w to others within %v", pgerr.ErrNoAnswer, from.Lease.Validity()))
	defer cancel()
	from.ResetSettings() // another server may take them, and so may this one
	p.elsewhere = false
	found, err := share(waiting, &transaction.Turns, from.Pool(), struct {
		session.Scope
		lease.Lease
		pins int
	}{from.Scope, from.Lease, from.Pins}, func() (found session.Finding, whole bool, err error) {
		found.Deaf, err = p.checkScope(ctx, from)
		found.InTransaction, found.MetStandby, found.Pooled = from.InTransaction(), p.elsewhere, p.found
		if err == nil && from.HasAllSettings() {
			p.leftOut = nil
		}
		return found, from.HasAllSettings(), err
	})
	if err == nil {
		p.found = found.Pooled
		from.Passed(found)
	}
	return err
}

// poolerRepeats is how often a failure that may have another cause than a pooler must show again.
const poolerRepeats = 2

// checkServer checks the server, on two connections; and on new ones again if statements were mixed up, or the
// protocol was violated (08P01): by a pooler that mixes clients up, or is full, or has lost a
// connection. deaf says why its connections cannot be waited on.
func (p *Part) checkServer(ctx context.Context, from *session.Source) (deaf, err error) {
	for repeats := from.Pool().Stats().Idle/2 + poolerRepeats; ; repeats-- { // each discards two connections
		err = p.onPrimary(ctx, from, func(a *session.Session) error {
			return p.onPrimary(ctx, from, func(b *session.Session) error { return p.checkPooler(ctx, from, a, b) })
		})
		if err == nil {
			err = p.passOver(func() error {
				deaf, err = listen.Before(ctx, from, func(s *session.Session) error { return p.checkSettings(ctx, from, s) })
				return err
			})
		}
		if repeats == 0 || !errors.Is(err, pgerr.ErrMixedUp) && pgerr.State(err) != "08P01" {
			return deaf, err
		}
	}
}

// maxServers is how many servers a pool may lead to in turn.
const maxServers = 3

// isElsewhere reports whether an error says that a connection leads to another server than the primary. A pool
// may lead to a primary and its standbys in turn, and what one of them answers says nothing about the others:
// another connection is asked.
func (p *Part) isElsewhere(err error) bool {
	is := errors.Is(err, pgerr.ErrServerReadOnly) || errors.Is(err, lock.ErrTwoServers)
	p.elsewhere = p.elsewhere || is
	return is
}

// passOver calls lend for other connections while they lead elsewhere.
func (p *Part) passOver(lend func() error) (err error) {
	for range maxServers {
		if err = lend(); !p.isElsewhere(err) {
			break
		}
	}
	return err
}

// onPrimary lends fn a connection to a primary.
func (p *Part) onPrimary(ctx context.Context, from *session.Source, fn func(*session.Session) error) error {
	for n := 1; ; n++ {
		found := false
		err := from.LendIn(ctx, false, func(s *session.Session) error {
			if err := p.checkPrimary(ctx, from, s); err != nil {
				return err
			}
			found = true
			return fn(s)
		})
		if found || !p.isElsewhere(err) || n == maxServers {
			return err
		}
	}
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

// checkPooler asks two connections for their backends, of which each has told one. If it is no pooler's, a
// connection reaches one backend, and the other does not. What the server counts or shows of a backend is no
// evidence: one begins transactions by itself, to catch up with changes of the catalog, or to notify.
func (p *Part) checkPooler(ctx context.Context, from *session.Source, a, b *session.Session) error {
	if started, _ := b.Backend.Mark(); a.Backend.Is(b.PID(), started) {
		return reachedBoth(b.PID())
	}
	more := turns
	if from.HasPassed() && !p.found {
		more = turns[:len(turns)/2]
	}
	for _, turn := range more {
		s, other := a, b
		if turn == 'b' {
			s, other = b, a
		}
		server, err := session.Describe(ctx, s)
		switch {
		case err != nil:
			return fmt.Errorf("elector: check for a pooler: %w", pgerr.Explain(err))
		case other.Backend.Is(server.Pid, server.Started):
			return reachedBoth(server.Pid)
		case !s.Backend.Is(server.Pid, server.Started):
			return fmt.Errorf("%w: one connection reached backend %d, then %d", pgerr.ErrSessionPooled, s.PID(), server.Pid)
		}
	}
	return nil
}

func reachedBoth(pid int32) error {
	return fmt.Errorf("%w: two connections reached backend %d", pgerr.ErrSessionPooled, pid)
}

// checkSettings tries the settings inside a transaction.
func (p *Part) checkSettings(ctx context.Context, from *session.Source, s *session.Session) error {
	err := transaction.Try(ctx, s, from.Settings)
	if pgerr.IsMixedUp(err) {
		err = transaction.Try(ctx, s, from.Settings) // the transaction has failed with it
	}
	if refusesSetting(err) {
		return p.dropRefusedSettings(ctx, from, s, session.LeaseSetting)
	}
	return pgerr.Explain(err)
}

// dropRefusedSettings tries each setting alone. It leaves out those that the platform refuses
// (client_connection_check_interval exists on Linux, macOS and the BSDs only), until the next check,
// and reports them once. The one that is the lease must not be refused. A server in recovery refuses
// transactions, and no setting.
func (p *Part) dropRefusedSettings(ctx context.Context, from *session.Source, s *session.Session, lease string) error {
	var taken []session.Setting
	refused := map[string]error{}
	for _, one := range from.Settings {
		err := transaction.Try(ctx, s, []session.Setting{one})
		switch {
		case err == nil:
			taken = append(taken, one)
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
			from.Report(ctx, session.SettingUp, err)
		}
	}
	from.Settings, p.leftOut = taken, refused
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
