// Package servers starts what the candidates connect to: one temporary PostgreSQL, one etcd, and for some systems one
// Consul and one kube-apiserver, which stores in that etcd.
package servers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// Candidates connect with these roles, so that the server counts their statements apart.
const (
	Leader   = "lead"
	Follower = "follow"
)

// Durable says in the report how the servers store data.
const Durable = "fsync and full_page_writes on, as in production; etcd and Consul sync their logs too"

// Servers may be used from any goroutine, but Restart must not run beside another method.
type Servers struct {
	PG     *pgcluster.Cluster
	Pooler *pgcluster.Bouncer // in front of PG, in transaction mode
	Admin  *pgxpool.Pool
	others map[string]*Process

	mu    sync.Mutex
	count int
}

// Start starts the servers. PostgreSQL allows the given number of connections.
func Start(ctx context.Context, connections int) (_ *Servers, err error) {
	s := &Servers{others: map[string]*Process{}}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	s.PG, err = pgcluster.Start(ctx,
		pgcluster.WithSetting("fsync", "on"),
		pgcluster.WithSetting("full_page_writes", "on"),
		pgcluster.WithSetting("shared_buffers", "128MB"),
		pgcluster.WithSetting("max_connections", strconv.Itoa(connections)),
		pgcluster.WithSetting("max_locks_per_transaction", "256"), // 10,000 elections on one session
		pgcluster.WithSetting("shared_preload_libraries", "pg_stat_statements"),
		pgcluster.WithSetting("checkpoint_timeout", "1h"), // longer than any measurement
		pgcluster.WithSetting("autovacuum_naptime", "1h"),
	)
	if err != nil {
		return nil, err
	}
	if err = s.prepare(ctx); err != nil {
		return nil, err
	}
	if s.Pooler, err = s.PG.Bouncer(ctx, pgcluster.Transaction, pgcluster.WithPoolSize(32)); err != nil {
		return nil, err
	}
	err = s.Launch(ctx, Etcd)
	return s, err
}

func (s *Servers) prepare(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(s.PG.DSN(pgcluster.WithParam("application_name", "bench")))
	if err != nil {
		return err
	}
	config.MaxConns = 32
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if s.Admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	for _, sql := range []string{
		"CREATE EXTENSION pg_stat_statements",
		"CREATE ROLE " + Leader + " SUPERUSER LOGIN",
		"CREATE ROLE " + Follower + " SUPERUSER LOGIN",
	} {
		if _, err := s.Admin.Exec(ctx, sql); err != nil {
			return fmt.Errorf("prepare the server: %s: %w", sql, err)
		}
	}
	_, _ = s.Admin.Exec(ctx, "CREATE EXTENSION pg_walinspect") // PostgreSQL 15 and later have it
	return nil
}

// Stop stops the servers.
func (s *Servers) Stop() {
	for _, p := range s.others {
		p.stop()
	}
	if s.Admin != nil {
		s.Admin.Close()
	}
	if s.PG != nil {
		_ = s.PG.Stop()
	}
}

// Name returns a new name that starts with kind.
func (s *Servers) Name(kind string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	return fmt.Sprintf("%s%d", kind, s.count)
}

// An Address is what candidates connect to: the server, the pooler or a proxy.
type Address interface {
	Addr() string
	DSN(opts ...pgcluster.DSNOption) string
}

// DSN returns a data source name for the candidate id.
func (s *Servers) DSN(at Address, role, id string) string {
	opts := []pgcluster.DSNOption{pgcluster.ForRole(role), pgcluster.WithParam("application_name", id)}
	if at == Address(s.Pooler) {
		opts = append(opts, pgcluster.WithParam("default_query_exec_mode", "exec"))
	}
	return at.DSN(opts...)
}

// Terminate terminates all backends of a candidate. It is an error if there are none.
func (s *Servers) Terminate(ctx context.Context, id string) error {
	var n int
	err := s.Admin.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1", id).Scan(&n)
	if err == nil && n == 0 {
		err = errors.New("terminate: the candidate " + id + " has no backend")
	}
	return err
}

// Endpoint returns the address of a server other than PostgreSQL.
func (s *Servers) Endpoint(name string) string { return s.others[name].Endpoint }

// PIDs returns the processes of a server other than PostgreSQL. The etcd that kube-apiserver stores in is one of its.
func (s *Servers) PIDs(name string) []int {
	if name == Kubernetes {
		return []int{s.others[name].pid, s.others[Etcd].pid}
	}
	return []int{s.others[name].pid}
}

// Restart restarts servers while candidates are connected.
func (s *Servers) Restart(ctx context.Context, names []string) error {
	failures := make(chan error, len(names))
	for _, name := range names {
		go func() {
			if p := s.others[name]; p != nil {
				failures <- p.restart(ctx)
			} else {
				failures <- s.PG.Restart(ctx, pgcluster.Fast)
			}
		}()
	}
	var all error
	for range names {
		all = errors.Join(all, <-failures)
	}
	return all
}
