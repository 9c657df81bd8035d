// Package world is what the candidates live in: one throw-away PostgreSQL, and one etcd.
package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// The roles that candidates connect as, so that the server accounts for them apart.
const (
	Leader   = "lead"
	Follower = "follow"
)

// Durable says how the servers store data, for the report.
const Durable = "fsync and full_page_writes on, as in production; etcd syncs its log too"

// World is the servers. Its methods may be called from any goroutine, except Restart.
type World struct {
	PG    *pgcluster.Cluster
	Etcd  *Etcd
	Admin *pgxpool.Pool

	mu    sync.Mutex
	count int
}

// Start starts the servers, for at most so many connections.
func Start(ctx context.Context, connections int) (_ *World, err error) {
	w := &World{}
	defer func() {
		if err != nil {
			w.Stop()
		}
	}()
	w.PG, err = pgcluster.Start(ctx,
		pgcluster.WithSetting("fsync", "on"),
		pgcluster.WithSetting("full_page_writes", "on"),
		pgcluster.WithSetting("shared_buffers", "128MB"),
		pgcluster.WithSetting("max_connections", strconv.Itoa(connections)),
		pgcluster.WithSetting("max_locks_per_transaction", "256"), // 10,000 elections on one session
		pgcluster.WithSetting("shared_preload_libraries", "pg_stat_statements"),
		pgcluster.WithSetting("checkpoint_timeout", "1h"), // none within a measurement
		pgcluster.WithSetting("autovacuum_naptime", "1h"),
	)
	if err != nil {
		return nil, err
	}
	if err = w.prepare(ctx); err != nil {
		return nil, err
	}
	w.Etcd, err = startEtcd(ctx)
	return w, err
}

func (w *World) prepare(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(w.PG.DSN(pgcluster.WithParam("application_name", "bench")))
	if err != nil {
		return err
	}
	config.MaxConns = 32
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if w.Admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	for _, sql := range []string{
		"CREATE EXTENSION pg_stat_statements",
		"CREATE ROLE " + Leader + " SUPERUSER LOGIN",
		"CREATE ROLE " + Follower + " SUPERUSER LOGIN",
	} {
		if _, err := w.Admin.Exec(ctx, sql); err != nil {
			return fmt.Errorf("prepare the server: %s: %w", sql, err)
		}
	}
	_, _ = w.Admin.Exec(ctx, "CREATE EXTENSION pg_walinspect") // where there is one
	return nil
}

// Stop ends the servers.
func (w *World) Stop() {
	if w.Etcd != nil {
		w.Etcd.Stop()
	}
	if w.Admin != nil {
		w.Admin.Close()
	}
	if w.PG != nil {
		_ = w.PG.Stop()
	}
}

// Name is a new name for an election, or for a candidate.
func (w *World) Name(kind string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	return fmt.Sprintf("%s%d", kind, w.count)
}

// DSN is how a candidate connects.
func (w *World) DSN(role, id string) string {
	return w.PG.DSN(pgcluster.ForRole(role), pgcluster.WithParam("application_name", id))
}

// Proxy is a proxy of a candidate's own.
func (w *World) Proxy(ctx context.Context) (*pgcluster.Proxy, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.PG.Proxy(ctx)
}

// ProxyDSN is DSN through a proxy.
func (w *World) ProxyDSN(p *pgcluster.Proxy, role, id string) string {
	return p.DSN(pgcluster.ForRole(role), pgcluster.WithParam("application_name", id))
}

// Terminate ends all backends of a candidate, and reports an error if it had none.
func (w *World) Terminate(ctx context.Context, id string) error {
	var n int
	err := w.Admin.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1", id).Scan(&n)
	if err == nil && n == 0 {
		err = errors.New("terminate: the candidate " + id + " has no backend")
	}
	return err
}

// Restart restarts both servers, under whoever is connected.
func (w *World) Restart(ctx context.Context) error {
	etcd := make(chan error, 1)
	go func() { etcd <- w.Etcd.Restart() }()
	return errors.Join(w.PG.Restart(ctx, pgcluster.Fast), <-etcd)
}

// Hole is a TCP proxy that can swallow everything, for etcd: pgcluster's proxies lead to PostgreSQL only.
type Hole struct {
	listener net.Listener
	upstream string

	mu      sync.Mutex
	isBlack bool
	conns   []net.Conn
}

// NewHole starts a proxy in front of an address. It lets everything pass.
func NewHole(upstream string) (*Hole, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &Hole{listener: listener, upstream: upstream}
	go h.serve()
	return h, nil
}

// Addr returns the host and port that it listens on.
func (h *Hole) Addr() string { return h.listener.Addr().String() }

// BlackHole stops all bytes, both ways; connections stay open.
func (h *Hole) BlackHole() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isBlack = true
}

// Close ends everything.
func (h *Hole) Close() error {
	err := h.listener.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, conn := range h.conns {
		_ = conn.Close()
	}
	return err
}

func (h *Hole) serve() {
	for {
		client, err := h.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp4", h.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		h.mu.Lock()
		h.conns = append(h.conns, client, server)
		h.mu.Unlock()
		go h.pass(server, client)
		go h.pass(client, server)
	}
}

// pass copies until an end closes, and never again once the hole is black.
func (h *Hole) pass(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if h.black() {
			return
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			_ = to.Close()
			return
		}
	}
}

func (h *Hole) black() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isBlack
}
