package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
)

const oldestServer = 140000 // idle_session_timeout came with PostgreSQL 14

// check asks, before the first attempt on a pool and again after a failure, whether the
// server can keep the promise. It comes before the lock: one that was granted through a
// transaction pooler would stay on a backend that strangers share.
func (v *Server) check(ctx context.Context) error {
	if err := CheckPoolSize(v.pool, v.Watch, v.LongestLease > 0); err != nil {
		return err
	}
	if v.checked {
		return nil
	}
	waiting, cancel := context.WithTimeoutCause(ctx, v.Lease.Validity(), fmt.Errorf("%w to others within %v", ErrNoAnswer, v.Lease.Validity()))
	defer cancel()
	inside, err := poolChecks.share(waiting, v.pool, struct {
		Scope
		Lease
		synchronous bool
	}{v.Scope, v.Lease, v.LongestLease > 0}, func() (inside, whole bool, err error) {
		err = v.checkScope(ctx)
		return v.InTransaction(), len(v.settings) == len(settings(v.Config)), err
	})
	if err == nil {
		v.inside.Store(inside)
		v.primary.Store(true)
		v.passed.Store(true)
		v.noticePromotion(ctx)
		err = v.checkReplication(ctx)
	}
	v.checked = err == nil
	return err
}

// poolerRepeats is how often a pooler must show again to be believed, and how many checks in
// a row must find none: each may miss a busy one. (Measured: one of 730 did, with three
// strangers on two backends.)
const poolerRepeats = 2

// checkServer checks the server twice, or once if it has passed before, and on new connections
// again if it finds a pooler: a connection that is cut in the middle of a check can look like
// one. A protocol violation (08P01) is checked again, too: a pooler that mixes clients up, or
// one that is full.
func (v *Server) checkServer(ctx context.Context) error {
	repeats := v.pool.Stats().Idle/2 + poolerRepeats // each discards two connections
	for found, missed := 0, 0; ; {
		switch err := v.checkOnce(ctx); {
		case errors.Is(err, ErrSessionPooled) || pgerr.State(err) == "08P01":
			if found++; found > repeats {
				return err
			}
			missed = 0
		case err != nil || missed+1 == poolerRepeats || found == 0 && v.passed.Load():
			return err
		default:
			missed++
		}
	}
}

// checkOnce is one check, on two connections.
func (v *Server) checkOnce(ctx context.Context) error {
	return v.with(ctx, false, func(a *Session) error {
		if err := v.checkPrimary(ctx, a); err != nil {
			return err
		}
		return v.with(ctx, false, func(b *Session) error {
			if err := v.checkPooler(ctx, a, b); err != nil {
				return fmt.Errorf("elector: check for a pooler: %w", err)
			}
			return nil
		})
	})
}

// checkPrimary returns nil if the session is on a primary that is new enough.
func (v *Server) checkPrimary(ctx context.Context, s *Session) error {
	server, err := describe(ctx, s)
	switch {
	case err != nil:
		return fmt.Errorf("elector: check the server: %w", Explain(err))
	case server.VersionNum < oldestServer:
		return fmt.Errorf("%w: this is %s", ErrServerTooOld, server.Version)
	case server.InRecovery:
		return ErrServerReadOnly
	}
	s.pid, s.begun = server.Pid, server.Begun
	v.primary.Store(true)
	return nil
}

// CheckPoolSize returns ErrPoolTooSmall unless the pool allows one more connection than a
// session pins.
func CheckPoolSize(pool *sql.DB, watching, synchronous bool) error {
	least := 2
	for _, more := range []bool{watching, synchronous} {
		if more {
			least++
		}
	}
	if limit := pool.Stats().MaxOpenConnections; limit > 0 && limit < least {
		return fmt.Errorf("%w: SetMaxOpenConns(%d), want at least %d", ErrPoolTooSmall, limit, least)
	}
	return nil
}

// checkPooler compares the backends behind two connections, which it asks in turn. A pooler in
// transaction mode gives one connection the other's backend, or one that strangers used
// meanwhile: its count of transactions grew by more than these questions. While b is inside a
// transaction, a and the strangers share the other backends. In statement mode b cannot begin
// one.
func (v *Server) checkPooler(ctx context.Context, a, b *Session) error {
	c := &comparison{a: a, b: b}
	for _, s := range []*Session{b, a, b} {
		if err := c.ask(ctx, s); err != nil {
			return err
		}
	}
	err := v.compareInTx(ctx, c)
	if isMissingStatement(err) {
		err = v.compareInTx(ctx, c) // the transaction has failed with it
	}
	if refusesSetting(err) {
		return v.dropRefusedSettings(ctx, b, leaseSetting)
	}
	return Explain(err)
}

// A comparison is of the backends of two connections.
type comparison struct {
	a, b *Session
	step int64 // how many transactions the driver needs for a question; 0 until known
}

// ask asks one of them, which must reach its backend, and be the only one that does.
func (c *comparison) ask(ctx context.Context, s *Session) error {
	server, err := describe(ctx, s)
	begun := server.Begun - s.begun
	switch {
	case err != nil:
		return Explain(err)
	case c.a.pid == server.Pid && s != c.a:
		return fmt.Errorf("%w: two connections reached backend %d", ErrSessionPooled, server.Pid)
	case s.pid == 0:
	case server.Pid != s.pid:
		return fmt.Errorf("%w: one connection reached backend %d, then %d", ErrSessionPooled, s.pid, server.Pid)
	case c.step == 0:
		c.step = max(begun, 0)
	case begun != c.step:
		return fmt.Errorf("%w: backend %d answers others besides this connection", ErrSessionPooled, s.pid)
	}
	s.pid, s.begun = server.Pid, server.Begun
	return nil
}

// compareInTx compares them while b is inside a transaction, tries the settings there, and
// compares them again.
func (v *Server) compareInTx(ctx context.Context, c *comparison) error {
	err := c.b.begin(ctx)
	switch {
	case pgerr.State(err) == "08P01": // on a connection that has just answered: a pooler refuses transactions
		return pgerr.Wrap(ErrSessionPooled, err)
	case err != nil:
		return err
	}
	if err = c.ask(ctx, c.a); err == nil {
		err = c.b.applyLocally(ctx, v.settings)
	}
	err = c.b.rollBack(ctx, err)
	c.b.begun++
	if err == nil || refusesSetting(err) {
		if others := c.ask(ctx, c.b); others != nil {
			return others
		}
	}
	return err
}

func describe(ctx context.Context, s *Session) (db.DescribeServerRow, error) {
	row, err := doFresh(ctx, s, func(ctx context.Context, q *db.Queries) (db.DescribeServerRow, error) { return q.DescribeServer(ctx) })
	if err == nil {
		err = s.CheckOutside(row.InTransaction)
	}
	return row, err
}

// applyLocally applies settings for the rest of the transaction.
func (s *Session) applyLocally(ctx context.Context, settings []setting) error {
	_, err := doFresh(ctx, s, func(ctx context.Context, q *db.Queries) (int64, error) {
		return q.ApplySettings(ctx, db.ApplySettingsParams{Settings: Encode(settings), OnlyLocal: true})
	})
	return err
}

// dropRefusedSettings tries each setting alone. It reports those that the platform refuses
// (client_connection_check_interval exists on Linux, macOS and the BSDs only), and leaves
// them out from now on. The one that is the lease must not be refused.
func (v *Server) dropRefusedSettings(ctx context.Context, s *Session, lease string) error {
	var failed error
	v.settings = slices.DeleteFunc(slices.Clone(v.settings), func(one setting) bool {
		if failed != nil {
			return false
		}
		err := s.begin(ctx)
		if err == nil {
			err = s.rollBack(ctx, s.applyLocally(ctx, []setting{one}))
		}
		switch {
		case err == nil:
			return false
		case !refusesSetting(err) || one.Name == lease:
			failed = fmt.Errorf("elector: check the session settings: %s: %w", one.Name, Explain(err))
			return false
		}
		v.Report(ctx, Setting, fmt.Errorf("elector: the server refuses the setting %s = %s, which is left out: %w", one.Name, one.Value, err))
		return true
	})
	return failed
}
