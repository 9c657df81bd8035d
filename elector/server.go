package elector

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/hooks"
)

const oldestServer = 140000 // idle_session_timeout came with PostgreSQL 14

// A server is the pool's other end: what was learned of it, and how sessions on
// it are set up. It is used by one goroutine at a time.
type server struct {
	pool     *sql.DB
	lease    lease
	watching bool
	settings []setting
	checked  bool        // since the last failure
	primary  atomic.Bool // at any time
	barred   *int64      // the election at whose barrier the last attempt waited in vain
	report   func(context.Context, hooks.Failure)
}

func newServer(pool *sql.DB, c config, report func(context.Context, hooks.Failure)) *server {
	return &server{pool: pool, lease: c.lease, watching: c.watch, settings: settings(c), report: report}
}

// borrow takes a connection from the pool.
func (v *server) borrow(ctx context.Context) (*session, error) {
	return borrow(ctx, v.pool, v.lease, func(err error) {
		v.report(context.Background(), hooks.Failure{Op: hooks.OpCall, Err: err})
	})
}

// A setting is one parameter of a session of ours. All of them die with the
// session, because the session is discarded.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

const leaseSetting = "idle_session_timeout"

// settings are what a session needs: the lease, and values of ours for what
// the role's defaults would otherwise end the session by. (PostgreSQL manual,
// 20.11.1 and 20.3.2. TCP settings are ignored on Unix sockets.)
func settings(c config) []setting {
	l := c.lease
	millis := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	seconds := func(d time.Duration) string { return strconv.Itoa(int(max(d, time.Second).Seconds())) }
	return []setting{
		{"application_name", c.candidateID},
		{leaseSetting, millis(l.length)},
		{"statement_timeout", millis(l.length)},
		{"lock_timeout", "0"},
		{"transaction_timeout", "0"}, // 17 and newer
		{"idle_in_transaction_session_timeout", millis(l.length)},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_deferrable", "off"}, // or a heartbeat may wait for others' transactions
		{"synchronous_commit", "local"},           // the token outlives a crash, and waits for no standby
		{"client_connection_check_interval", millis(l.heartbeat)},
		{"tcp_user_timeout", millis(l.length)},
		{"tcp_keepalives_idle", seconds(l.heartbeat)},
		{"tcp_keepalives_interval", seconds(l.heartbeat)},
		{"tcp_keepalives_count", "3"},
	}
}

// encode writes a parameter as JSON text: the one form that both drivers and
// sqlc pass on as it is.
func encode(parameter any) string {
	text, _ := json.Marshal(parameter) // strings and integers only: cannot fail
	return string(text)
}

// check asks, before the first attempt on a pool and again after a failure,
// whether the server can keep the promise. It must come before the lock: one
// that was granted through a transaction pooler would stay on a backend that
// strangers share.
func (v *server) check(ctx context.Context) error {
	if err := roomIn(v.pool, v.watching); err != nil {
		return err
	}
	if v.checked {
		return nil
	}
	patience, cancel := context.WithTimeoutCause(ctx, v.lease.validity(), fmt.Errorf("%w to others within %v", ErrNoAnswer, v.lease.validity()))
	defer cancel()
	leave, err := checks.enter(patience, v.pool)
	if err != nil {
		return err
	}
	defer leave()
	err = v.with(ctx, func(a *session) error {
		server, err := describe(ctx, a)
		switch {
		case err != nil:
			return fmt.Errorf("elector: check the server: %w", explain(err))
		case server.VersionNum < oldestServer:
			return fmt.Errorf("%w: this is %s", ErrServerTooOld, server.Version)
		case server.InRecovery:
			return ErrServerReadOnly
		}
		a.pid = server.Pid
		v.primary.Store(true)
		return v.with(ctx, func(b *session) error { return v.checkPooler(ctx, a, b) })
	})
	v.checked = err == nil
	if v.checked {
		v.unbar(ctx)
	}
	return err
}

// roomIn says whether the pool can spare what a session pins, and one more.
func roomIn(pool *sql.DB, watching bool) error {
	least := 2
	if watching {
		least = 3
	}
	if limit := pool.Stats().MaxOpenConnections; limit > 0 && limit < least {
		return fmt.Errorf("%w: SetMaxOpenConns(%d), want at least %d", ErrPoolTooSmall, limit, least)
	}
	return nil
}

// poolerRounds is how often two connections are compared, before once more
// within a transaction: chance may hide a pooler that is busy with others.
const poolerRounds = 2

// checkPooler compares the backends behind two connections. Through a pooler in
// transaction mode, b finds a's backend free and gets it, or else a stranger uses
// it after a did, which b can see; and while b is inside a transaction, a and the
// strangers have to share what is left. In statement mode b cannot begin one.
func (v *server) checkPooler(ctx context.Context, a, b *session) error {
	compare := func(bCtx context.Context, q *db.Queries) (int64, error) { return 0, compareBackends(ctx, a, bCtx, q) }
	for range poolerRounds {
		if _, err := do(ctx, b, compare); err != nil {
			return fmt.Errorf("elector: check for a pooler: %w", explain(err))
		}
	}
	_, err := inTx(ctx, b, func(bCtx context.Context, q *db.Queries) (int64, error) {
		if err := compareBackends(ctx, a, bCtx, q); err != nil {
			return 0, err
		}
		return q.ApplySettings(bCtx, db.ApplySettingsParams{Settings: encode(v.settings), OnlyLocal: true})
	})
	switch {
	case err == nil:
		return nil
	case refusesSetting(err):
		return v.dropRefusedSettings(ctx, b)
	case sqlState(err) == "08P01": // on a connection that has just answered: transactions are not let through
		err = because(ErrSessionPooled, err)
	}
	return fmt.Errorf("elector: check for a pooler: %w", explain(err))
}

// compareBackends asks a, and then, on another connection, for what a's backend
// was last asked.
func compareBackends(ctx context.Context, a *session, bCtx context.Context, b *db.Queries) error {
	server, err := describe(ctx, a)
	if err == nil && server.Pid != a.pid {
		err = fmt.Errorf("%w: one connection reached backend %d, then %d", ErrSessionPooled, a.pid, server.Pid)
	}
	if err != nil {
		return err
	}
	witness, err := b.Witness(bCtx, a.pid)
	switch {
	case err != nil:
		return err
	case witness.Pid == a.pid:
		return fmt.Errorf("%w: two connections reached backend %d", ErrSessionPooled, a.pid)
	case witness.Asked != server.Asked && witness.Asked != 0:
		return fmt.Errorf("%w: backend %d answers others besides this connection", ErrSessionPooled, a.pid)
	}
	return nil
}

func describe(ctx context.Context, s *session) (db.DescribeServerRow, error) {
	return do(ctx, s, func(ctx context.Context, q *db.Queries) (db.DescribeServerRow, error) { return q.DescribeServer(ctx) })
}

// dropRefusedSettings tries each setting alone, reports those that the
// platform refuses (client_connection_check_interval exists on Linux, macOS and
// the BSDs only), and leaves them out from now on.
func (v *server) dropRefusedSettings(ctx context.Context, s *session) error {
	var failed error
	kept := slices.DeleteFunc(slices.Clone(v.settings), func(one setting) bool {
		if failed != nil {
			return false
		}
		_, err := inTx(ctx, s, func(ctx context.Context, q *db.Queries) (int64, error) {
			return q.ApplySettings(ctx, db.ApplySettingsParams{Settings: encode([]setting{one}), OnlyLocal: true})
		})
		switch {
		case err == nil:
			return false
		case !refusesSetting(err) || one.Name == leaseSetting:
			failed = fmt.Errorf("elector: check the session settings: %s: %w", one.Name, explain(err))
			return false
		}
		v.report(ctx, hooks.Failure{Op: hooks.OpSetting,
			Err: fmt.Errorf("elector: the server refuses the setting %s = %s, which is left out: %w", one.Name, one.Value, err)})
		return true
	})
	if failed == nil {
		v.settings = kept
	}
	return failed
}

// with lends fn a connection: back to the pool untouched if all went well.
func (v *server) with(ctx context.Context, fn func(*session) error) error {
	s, err := v.borrow(ctx)
	if err != nil {
		return err
	}
	if err := fn(s); err != nil {
		s.discard()
		return err
	}
	s.giveBack()
	return nil
}

// patiently calls try, again at once if it met a dead connection. An idle
// connection of the pool may have been dead for a while, as all are after a
// restart of the server; that is no reason to wait. After an error the server is
// checked anew, because it may be another one by then.
func (v *server) patiently(ctx context.Context, try func() error) error {
	for idle := v.pool.Stats().Idle; ; idle-- {
		err := v.check(ctx)
		if err == nil {
			err = try()
		}
		v.checked = err == nil
		if err == nil || idle <= 0 || !broken(err) || ctx.Err() != nil {
			return err
		}
	}
}
