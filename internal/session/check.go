package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
)

const oldestServer = 140000 // idle_session_timeout came with PostgreSQL 14

// check asks, before the first attempt on a pool and again after a failure, whether the
// server can keep the promise. It comes before the lock: one that was granted through a
// transaction pooler would stay on a backend that strangers share.
func (from *Source) check(ctx context.Context) error {
	if err := CheckPoolSize(from.pool, from.Pins); err != nil {
		return err
	}
	if from.checked {
		return nil
	}
	waiting, cancel := context.WithTimeoutCause(ctx, from.Lease.Validity(), fmt.Errorf("%w to others within %v", pgerr.ErrNoAnswer, from.Lease.Validity()))
	defer cancel()
	found, err := poolChecks.share(waiting, from.pool, struct {
		Scope
		lease.Lease
		pins int
	}{from.Scope, from.Lease, from.Pins}, func() (found finding, err error) {
		if err = from.checkScope(ctx); err == nil {
			found.deaf, err = from.tryListening(ctx)
		}
		found.inside, found.whole = from.InTransaction(), len(from.settings) == len(settings(from.Name, from.Lease))
		return found, err
	})
	if err == nil {
		from.inside.Store(found.inside)
		from.deaf.Store(&found.deaf)
		from.primary.Store(true)
		from.passed.Store(true)
		from.noticePromotion(ctx)
		err = from.checkParts(ctx)
	}
	from.checked = err == nil
	return err
}

// poolerRepeats is how often a failure that may have another cause than a pooler must show again.
const poolerRepeats = 2

// checkServer checks the server, and on new connections again if statements were mixed up, or the
// protocol was violated (08P01): by a pooler that mixes clients up, or is full, or has lost a
// connection.
func (from *Source) checkServer(ctx context.Context) error {
	for repeats := from.pool.Stats().Idle/2 + poolerRepeats; ; repeats-- { // each discards two connections
		err := from.checkOnce(ctx)
		if repeats == 0 || !errors.Is(err, pgerr.ErrMixedUp) && pgerr.State(err) != "08P01" {
			return err
		}
	}
}

// checkOnce is one check, on two connections.
func (from *Source) checkOnce(ctx context.Context) error {
	return from.with(ctx, false, func(a *Session) error {
		if err := from.checkPrimary(ctx, a); err != nil {
			return err
		}
		return from.with(ctx, false, func(b *Session) error {
			if err := from.checkPooler(ctx, a, b); err != nil {
				return fmt.Errorf("elector: check for a pooler: %w", err)
			}
			return nil
		})
	})
}

// checkPrimary returns nil if the session is on a primary that is new enough.
func (from *Source) checkPrimary(ctx context.Context, s *Session) error {
	server, err := Describe(ctx, s)
	switch {
	case err != nil:
		return fmt.Errorf("elector: check the server: %w", pgerr.Explain(err))
	case server.VersionNum < oldestServer:
		return fmt.Errorf("%w: this is %s", pgerr.ErrServerTooOld, server.Version)
	case server.InRecovery:
		return pgerr.ErrServerReadOnly
	}
	s.pid, s.server = server.Pid, server.Started
	from.primary.Store(true)
	return nil
}

// CheckPoolSize returns ErrPoolTooSmall unless the pool allows one more connection than a
// session pins (0 means 1), and ErrPoolClosed if the pool is closed.
func CheckPoolSize(pool *sql.DB, pins int) error {
	least := max(pins, 1) + 1
	if limit := pool.Stats().MaxOpenConnections; limit > 0 && limit < least {
		return fmt.Errorf("%w: SetMaxOpenConns(%d), want at least %d", pgerr.ErrPoolTooSmall, limit, least)
	}
	return checkOpen(pool)
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
func (from *Source) checkPooler(ctx context.Context, a, b *Session) error {
	more := turns
	if from.passed.Load() {
		more = turns[:len(turns)/2]
	}
	for _, turn := range "b" + more {
		s, other := a, b
		if turn == 'b' {
			s, other = b, a
		}
		server, err := Describe(ctx, s)
		switch {
		case err != nil:
			return pgerr.Explain(err)
		case server.Pid == other.pid && server.Started == other.server:
			return fmt.Errorf("%w: two connections reached backend %d", pgerr.ErrSessionPooled, server.Pid)
		case s.pid != 0 && (server.Pid != s.pid || server.Started != s.server):
			return fmt.Errorf("%w: one connection reached backend %d, then %d", pgerr.ErrSessionPooled, s.pid, server.Pid)
		}
		s.pid, s.server = server.Pid, server.Started
	}
	err := b.tryLocally(ctx, from.settings)
	if pgerr.IsMixedUp(err) {
		err = b.tryLocally(ctx, from.settings) // the transaction has failed with it
	}
	if refusesSetting(err) {
		return from.dropRefusedSettings(ctx, b, leaseSetting)
	}
	return pgerr.Explain(err)
}

// Describe asks the session what its server is. It returns an error if other code has left a
// transaction open.
func Describe(ctx context.Context, s *Session) (db.DescribeServerRow, error) {
	row, err := Ask0(ctx, s.Fresh(), (*db.Queries).DescribeServer)
	if err == nil {
		err = s.CheckOutside(row.InTransaction)
	}
	return row, err
}

// applyLocally applies settings for the rest of the transaction.
func (s *Session) applyLocally(ctx context.Context, settings []setting) error {
	_, err := Ask(ctx, s.Fresh(), (*db.Queries).ApplySettings, db.ApplySettingsParams{Settings: Encode(settings), OnlyLocal: true})
	return err
}

// tryLocally applies settings in a transaction that it rolls back.
func (s *Session) tryLocally(ctx context.Context, settings []setting) error {
	err := s.begin(ctx)
	if err == nil {
		err = s.rollBack(ctx, s.applyLocally(ctx, settings))
	}
	return err
}

// dropRefusedSettings tries each setting alone. It reports those that the platform refuses
// (client_connection_check_interval exists on Linux, macOS and the BSDs only), and leaves
// them out from now on. The one that is the lease must not be refused.
func (from *Source) dropRefusedSettings(ctx context.Context, s *Session, lease string) error {
	var failed error
	from.settings = slices.DeleteFunc(slices.Clone(from.settings), func(one setting) bool {
		if failed != nil {
			return false
		}
		err := s.tryLocally(ctx, []setting{one})
		switch {
		case err == nil:
			return false
		case !refusesSetting(err) || one.Name == lease:
			failed = fmt.Errorf("elector: check the session settings: %s: %w", one.Name, pgerr.Explain(err))
			return false
		}
		from.Report(ctx, Setting, fmt.Errorf("elector: the server refuses the setting %s = %s, which is left out: %w", one.Name, one.Value, err))
		return true
	})
	return failed
}
