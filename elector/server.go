package elector

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/hooks"
)

const oldestServer = 140000 // idle_session_timeout came with PostgreSQL 14

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
		{"client_connection_check_interval", millis(l.heartbeat)},
		{"tcp_user_timeout", millis(l.length)},
		{"tcp_keepalives_idle", seconds(l.heartbeat)},
		{"tcp_keepalives_interval", seconds(l.heartbeat)},
		{"tcp_keepalives_count", "3"},
	}
}

func encode(settings []setting) string {
	text, _ := json.Marshal(settings) // strings only: cannot fail
	return string(text)
}

// check asks, before the first attempt on a pool and again after a failure,
// whether the server can keep the promise. It must come before the lock: one
// that was granted through a transaction pooler would stay on a backend that
// strangers share.
func (e *Elector) check(ctx context.Context) error {
	if e.pool.Stats().MaxOpenConnections == 1 {
		return ErrPoolTooSmall
	}
	if e.checked {
		return nil
	}
	err := e.with(ctx, func(a *session) error {
		server, err := do(ctx, a, func(ctx context.Context, q *db.Queries) (db.DescribeServerRow, error) { return q.DescribeServer(ctx) })
		switch {
		case err != nil:
			return fmt.Errorf("elector: check the server: %w", explain(err))
		case server.VersionNum < oldestServer:
			return fmt.Errorf("%w: this is %s", ErrServerTooOld, server.Version)
		case server.InRecovery:
			return ErrServerReadOnly
		}
		a.pid = server.Pid
		return e.with(ctx, func(b *session) error { return e.checkPooler(ctx, a, b) })
	})
	e.checked = err == nil
	return err
}

// checkPooler compares the backends behind two connections. Through a pooler in
// transaction mode, b finds a's backend free and gets it; and with b inside a
// transaction, a is moved to another. In statement mode b cannot even begin.
func (e *Elector) checkPooler(ctx context.Context, a, b *session) error {
	ping := func(ctx context.Context, q *db.Queries) (db.PingRow, error) { return q.Ping(ctx) }
	first, err := do(ctx, b, ping)
	if err != nil {
		return fmt.Errorf("elector: check for a pooler: %w", explain(err))
	}
	if first.Pid == a.pid {
		return fmt.Errorf("%w: two connections reached backend %d", ErrSessionPooled, a.pid)
	}
	_, err = inTx(ctx, b, func(txCtx context.Context, q *db.Queries) (int64, error) {
		second, err := do(ctx, a, ping)
		if err == nil && second.Pid != a.pid {
			err = fmt.Errorf("%w: one connection reached backend %d, then %d", ErrSessionPooled, a.pid, second.Pid)
		}
		if err != nil {
			return 0, err
		}
		return q.ApplySettings(txCtx, db.ApplySettingsParams{Settings: encode(e.settings), OnlyLocal: true})
	})
	if state := sqlState(err); state == "08P01" || err != nil && state == "" {
		return fmt.Errorf("elector: check for a pooler: %w", explain(err))
	}
	if err != nil {
		return e.dropRefusedSettings(ctx, b)
	}
	return nil
}

// dropRefusedSettings tries each setting alone, reports those that the
// platform refuses (client_connection_check_interval exists on Linux, macOS and
// the BSDs only), and leaves them out from now on.
func (e *Elector) dropRefusedSettings(ctx context.Context, s *session) error {
	var failed error
	e.settings = slices.DeleteFunc(slices.Clone(e.settings), func(one setting) bool {
		if failed != nil {
			return false
		}
		_, err := inTx(ctx, s, func(ctx context.Context, q *db.Queries) (int64, error) {
			return q.ApplySettings(ctx, db.ApplySettingsParams{Settings: encode([]setting{one}), OnlyLocal: true})
		})
		switch {
		case err == nil:
			return false
		case sqlState(err) == "" || one.Name == leaseSetting:
			failed = fmt.Errorf("elector: check the session settings: %s: %w", one.Name, err)
			return false
		}
		e.announcer.announce(e.announcer.failure(ctx, hooks.Failure{Op: hooks.OpSetting,
			Err: fmt.Errorf("elector: the server refuses the setting %s = %s, which is left out: %w", one.Name, one.Value, err)}))
		return true
	})
	return failed
}

// with lends fn a connection: back to the pool untouched if all went well.
func (e *Elector) with(ctx context.Context, fn func(*session) error) error {
	s, err := borrow(ctx, e.pool, e.lease, e.reportStuck)
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
