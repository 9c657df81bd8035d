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
		err = v.checkReplication(ctx)
	}
	v.checked = err == nil
	if v.checked {
		v.primary.Store(true)
		v.passed.Store(true)
	}
	return err
}

// poolerRepeats is how often a pooler must show again to be believed, and how many checks in
// a row must then miss it to disprove it: each may miss a busy one.
const poolerRepeats = 2

// checkServer checks the server on new connections again if it finds a pooler: a
// connection that is cut in the middle of a check can look like one. A protocol violation
// (08P01) is checked again, too: a pooler that mixes clients up, or one that is full.
func (v *Server) checkServer(ctx context.Context) error {
	repeats := v.pool.Stats().Idle/2 + poolerRepeats // each discards two connections
	for found, missed := 0, 0; ; {
		switch err := v.checkOnce(ctx); {
		case errors.Is(err, ErrSessionPooled) || pgerr.State(err) == "08P01":
			if found++; found > repeats {
				return err
			}
			missed = 0
		case err != nil || found == 0 || missed+1 == poolerRepeats:
			return err
		default:
			missed++
		}
	}
}

// checkOnce is one check, on two connections.
func (v *Server) checkOnce(ctx context.Context) error {
	return v.with(ctx, false, func(a *Session) error {
		asked, err := v.checkPrimary(ctx, a)
		if err != nil {
			return err
		}
		return v.with(ctx, false, func(b *Session) error {
			if err := v.checkPooler(ctx, a, b, asked); err != nil {
				return fmt.Errorf("elector: check for a pooler: %w", err)
			}
			return nil
		})
	})
}

// checkPrimary returns when the server was asked if the session is on a primary that is new
// enough.
func (v *Server) checkPrimary(ctx context.Context, s *Session) (asked int64, err error) {
	server, err := describe(ctx, s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("elector: check the server: %w", Explain(err))
	case server.VersionNum < oldestServer:
		return 0, fmt.Errorf("%w: this is %s", ErrServerTooOld, server.Version)
	case server.InRecovery:
		return 0, ErrServerReadOnly
	}
	s.pid = server.Pid
	v.primary.Store(true)
	return server.Asked, nil
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

// checkPooler compares the backends behind two connections. Through a pooler in transaction
// mode, one gets the other's backend, or sees that a stranger has used it. A stranger that
// hides b's backend from a and gives it back for b must use that one, so each looks at the
// other's. While b is inside a transaction, a and the strangers share what is left. In
// statement mode b cannot begin one. More rounds would not fit into the validity of a short
// lease on a slow link.
func (v *Server) checkPooler(ctx context.Context, a, b *Session, asked int64) error {
	if err := compareAsked(ctx, a, b, asked); err != nil {
		return Explain(err)
	}
	server, err := describeAgain(ctx, b)
	if err == nil {
		err = compareAsked(ctx, b, a, server.Asked)
	}
	if err != nil {
		return Explain(err)
	}
	err = v.compareInTx(ctx, a, b)
	if isMissingStatement(err) {
		err = v.compareInTx(ctx, a, b) // the transaction has failed with it
	}
	if refusesSetting(err) {
		return v.dropRefusedSettings(ctx, b, leaseSetting)
	}
	return Explain(err)
}

// compareInTx compares them while b is inside a transaction, and tries the settings there.
func (v *Server) compareInTx(ctx context.Context, a, b *Session) error {
	err := b.begin(ctx)
	switch {
	case pgerr.State(err) == "08P01": // on a connection that has just answered: a pooler refuses transactions
		return pgerr.Wrap(ErrSessionPooled, err)
	case err != nil:
		return err
	}
	server, err := describeAgain(ctx, a)
	if err == nil {
		err = b.applyLocally(ctx, v.settings)
	}
	err = b.rollBack(ctx, err)
	if server.Pid != 0 && (err == nil || refusesSetting(err)) {
		if others := compareAsked(ctx, a, b, server.Asked); others != nil { // long after a has asked, and others may have used its backend
			return others
		}
	}
	return err
}

// describeAgain asks a, which must reach its backend.
func describeAgain(ctx context.Context, a *Session) (db.DescribeServerRow, error) {
	server, err := describe(ctx, a)
	if err != nil {
		return server, Explain(err) // as a's, or it would be taken for b's
	}
	return server, a.sameBackend(server.Pid)
}

// sameBackend returns an error unless each answer of the check came from one backend.
func (s *Session) sameBackend(pid int32) error {
	if s.pid == 0 {
		s.pid = pid
	}
	if s.pid != pid {
		return fmt.Errorf("%w: one connection reached backend %d, then %d", ErrSessionPooled, s.pid, pid)
	}
	return nil
}

// compareAsked asks b whether a's backend was last asked by a.
func compareAsked(ctx context.Context, a, b *Session, asked int64) error {
	seen, err := lastAsked(ctx, b, a.pid)
	othersAsk := func() bool { return seen.Asked != asked && seen.Asked != 0 }
	if err == nil && othersAsk() {
		seen, err = lastAsked(ctx, b, a.pid)
	}
	switch {
	case err != nil:
		return err
	case seen.Pid == a.pid:
		return fmt.Errorf("%w: two connections reached backend %d", ErrSessionPooled, a.pid)
	case othersAsk():
		return fmt.Errorf("%w: backend %d answers others besides this connection", ErrSessionPooled, a.pid)
	}
	return b.sameBackend(seen.Pid)
}

func describe(ctx context.Context, s *Session) (db.DescribeServerRow, error) {
	row, err := doFresh(ctx, s, func(ctx context.Context, q *db.Queries) (db.DescribeServerRow, error) { return q.DescribeServer(ctx) })
	if err == nil {
		err = s.CheckOutside(row.InTransaction)
	}
	return row, err
}

// lastAsked asks s when the backend of that process id was last asked.
func lastAsked(ctx context.Context, s *Session, pid int32) (db.LastAskedRow, error) {
	row, err := doFresh(ctx, s, func(ctx context.Context, q *db.Queries) (db.LastAskedRow, error) { return q.LastAsked(ctx, pid) })
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
