package session

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// Config is what sessions of a server are like.
type Config struct {
	Name         string // the application_name: the candidate's id
	Lease        Lease
	LongestLease time.Duration                        // of all candidates, with synchronous standbys; 0 without
	Watch        bool                                 // whether a second connection watches the backend of a session
	TokenEpoch   int64                                // at least so much is added to the timeline of a token
	OnBeat       func(Beat)                           // is called after each heartbeat, which waits for it
	Report       func(context.Context, hooks.Failure) // is told of failures that end no session; must not wait
}

// A Server is the pool's other end: what was learned of it, and how sessions on
// it come to hold a lock ([Server.Try], [Server.Park], [Server.Open]). It is used
// by one goroutine at a time.
type Server struct {
	config    Config
	pool      *sql.DB
	settings  []setting
	checked   bool                      // since the last failure
	primary   atomic.Bool               // at any time
	passed    atomic.Bool               // a check, at any time
	primaries map[primary]time.Duration // when each was first seen, by the monotonic clock
	newest    newest                    // primary, if an older one was met
	barred    *int64                    // the lock at whose barrier the last attempt waited in vain
}

// NewServer neither connects nor starts anything.
func NewServer(pool *sql.DB, c Config) *Server {
	return &Server{config: c, pool: pool, settings: settings(c)}
}

// Refuses reports whether an error is permanent: no retry will make the server able to
// keep the promise. A server that was a primary before is being replaced, and one that
// has passed a check is behind no pooler. It may be called from any goroutine.
func (v *Server) Refuses(err error) bool {
	switch {
	case errors.Is(err, ErrServerReadOnly):
		return !v.primary.Load()
	case errors.Is(err, ErrSessionPooled):
		return !v.passed.Load()
	}
	return errors.Is(err, ErrNoAdvisoryLocks) || errors.Is(err, ErrPoolTooSmall) || errors.Is(err, ErrServerTooOld)
}

// Invalidate has the server checked anew before it is next asked for a lock.
func (v *Server) Invalidate() { v.checked = false }

// borrow takes a connection from the pool. One that leads to an old primary is closed.
func (v *Server) borrow(ctx context.Context) (*Session, error) {
	s, err := borrow(ctx, v.pool, v.config.Lease, func(err error) {
		v.config.Report(context.Background(), hooks.Failure{Op: hooks.OpCall, Err: err})
	})
	if err != nil {
		return nil, err
	}
	if err := v.refuseOld(ctx, s); err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

// start begins the life of a session that holds a lock, or will ask for some.
func (v *Server) start(s *Session) {
	s.late = ErrLeaseExpired // there is a lease from now on
	s.newest = &v.newest
	if v.config.Watch {
		s.watcher = make(chan struct{})
		own := &Server{config: v.config, pool: v.pool, settings: v.settings}
		go func() {
			defer close(s.watcher)
			own.watch(s)
		}()
	}
	if s.commits != nil {
		go s.commits.keep()
	}
	leave := live.join(v.pool, s)
	go func() {
		defer leave()
		s.keep(v.config.OnBeat)
	}()
}

// A setting is one parameter of a session of ours. All of them die with the
// session, because the session is discarded.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// The settings that are named besides.
const (
	leaseSetting  = "idle_session_timeout"
	commitSetting = "synchronous_commit"
)

// settings are what a session needs: the lease, and values of ours for what
// the role's defaults would otherwise end the session by. (PostgreSQL manual,
// 20.11.1 and 20.3.2. TCP settings are ignored on Unix sockets.)
func settings(c Config) []setting {
	l := c.Lease
	millis := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	seconds := func(d time.Duration) string { return strconv.Itoa(int(max(d, time.Second).Seconds())) }
	return []setting{
		{"application_name", c.Name},
		{"search_path", "pg_catalog, pg_temp"}, // no statement needs another: nobody's functions are found
		{leaseSetting, millis(l.Length)},
		{"statement_timeout", millis(l.Length)},
		{"lock_timeout", "0"},
		{"transaction_timeout", "0"}, // 17 and newer
		{"idle_in_transaction_session_timeout", millis(l.Length)},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_deferrable", "off"}, // or a heartbeat may wait for others' transactions
		{commitSetting, "local"},                  // the token outlives a crash, and waits for no standby
		{"plan_cache_mode", "force_generic_plan"}, // a statement is planned when it is rehearsed, and not again
		{"jit", "off"},                            // compiling takes longer than any statement of ours
		{"client_connection_check_interval", millis(l.Heartbeat)},
		{"tcp_user_timeout", millis(l.Length)},
		{"tcp_keepalives_idle", seconds(l.Heartbeat)},
		{"tcp_keepalives_interval", seconds(l.Heartbeat)},
		{"tcp_keepalives_count", "3"},
	}
}

// encode writes a parameter as JSON text: the one form that both drivers and
// sqlc pass on as it is.
func encode(parameter any) string {
	text, _ := json.Marshal(parameter) // strings and integers only: cannot fail
	return string(text)
}

// with lends fn a connection: back to the pool untouched if all went well.
func (v *Server) with(ctx context.Context, fn func(*Session) error) error {
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

// withRetry calls try, again at once if it met a dead connection, one with a
// transaction that other code has left open, or one to an old primary. An idle
// connection of the pool may have been so for a while, as all are dead after a restart
// of the server; that is no reason to wait. After an error the server is
// checked anew, because it may be another one by then.
func (v *Server) withRetry(ctx context.Context, try func() error) error {
	for idle := v.pool.Stats().Idle; ; idle-- {
		err := v.check(ctx)
		if err == nil {
			err = try()
		}
		v.checked = err == nil
		if isSuspicious(err) {
			live.suspect(v.pool)
		}
		dead := pgerr.Broken(err) && !errors.Is(err, ErrSessionPooled) || errors.Is(err, errOpenTransaction)
		if idle <= 0 || !dead && !errors.Is(err, ErrOldPrimary) {
			return err
		}
	}
}
