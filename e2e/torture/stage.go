//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// stage is the servers, and the poolers and proxies in front of them. All methods must be
// called by one goroutine.
type stage struct {
	namespaces bool // the program runs in separate namespaces

	primary, standby *pgcluster.Cluster
	timeline         int64
	logs             map[*pgcluster.Cluster]string // the file system of each server's write-ahead log

	links map[string]*link // by candidate
	wired int              // links made so far

	proxies  map[string]*pgcluster.Proxy        // by seat
	bouncers map[fleet.Route]*pgcluster.Bouncer // none if pgbouncer is not installed

	bouncerEnded func() // called in a separate goroutine when a pgbouncer has ended; initially nil
}

var serverSettings = []pgcluster.Option{
	pgcluster.WithSetting("max_connections", "120"),
	pgcluster.WithSetting("wal_keep_size", "8MB"),
	pgcluster.WithSetting("min_wal_size", "4MB"),
	pgcluster.WithSetting("max_wal_size", "8MB"),
}

func newStage(ctx context.Context, namespaces bool) (_ *stage, err error) {
	s := &stage{namespaces: namespaces, timeline: 1, logs: map[*pgcluster.Cluster]string{}, links: map[string]*link{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stopAll())
		}
	}()
	if namespaces { // hide what is there, so that nothing is left behind in it
		if err := syscall.Mount("tmpfs", "/mnt", "tmpfs", 0, "size=1m,mode=755"); err != nil {
			return s, fmt.Errorf("mount a file system on /mnt: %w", err)
		}
	}
	if s.primary, err = pgcluster.Start(ctx, serverSettings...); err != nil {
		return s, err
	}
	if err := s.primary.CreateRole(ctx, fleet.Role, nil); err != nil {
		return s, err
	}
	if err := s.primary.Exec(ctx, fleet.Schema); err != nil {
		return s, err
	}
	if err := s.open(ctx); err != nil {
		return s, err
	}
	if err := s.limitLog(ctx, s.primary); err != nil {
		return s, err
	}
	if err := s.newStandby(ctx); err != nil {
		return s, err
	}
	return s, s.startRoutes(ctx)
}

// open makes the server listen on the links, too. No other address can reach it.
func (s *stage) open(ctx context.Context) error {
	if !s.namespaces {
		return nil
	}
	hba, err := os.OpenFile(filepath.Join(s.primary.Dir(), "data", "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = hba.WriteString("host all all 10.77.0.0/16 trust\n")
	return errors.Join(err, hba.Close(), s.primary.Exec(ctx, "ALTER SYSTEM SET listen_addresses = '*'")) // effective from the next start
}

// logSize is small enough to fill quickly.
const logSize = "48m"

// limitLog moves a server's write-ahead log to a small file system, and restarts it.
func (s *stage) limitLog(ctx context.Context, c *pgcluster.Cluster) error {
	if !s.namespaces {
		return nil
	}
	dir, err := os.MkdirTemp("/mnt", "wal-")
	if err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+logSize); err != nil {
		return fmt.Errorf("mount a small file system: %w", err)
	}
	s.logs[c] = dir
	if err := c.Shutdown(ctx, pgcluster.Fast); err != nil {
		return err
	}
	if err := c.MoveWAL(dir); err != nil {
		return err
	}
	return c.Resume(ctx)
}

func (s *stage) newStandby(ctx context.Context) (err error) {
	if s.standby, err = s.primary.AddStandby(ctx); err != nil {
		return err
	}
	s.standby.Detach()
	return s.limitLog(ctx, s.standby)
}

// startRoutes starts poolers and proxies in front of the primary.
func (s *stage) startRoutes(ctx context.Context) (err error) {
	s.proxies = map[string]*pgcluster.Proxy{}
	for _, seat := range seats {
		if seat.Route == proxied {
			if s.proxies[seat.ID], err = s.primary.Proxy(ctx); err != nil {
				return err
			}
		}
	}
	s.bouncers = map[fleet.Route]*pgcluster.Bouncer{}
	for route, mode := range modes {
		bouncer, err := s.primary.Bouncer(ctx, mode, pgcluster.WithPoolSize(30))
		if errors.Is(err, pgcluster.ErrNoBouncer) {
			return nil
		}
		if err != nil {
			return err
		}
		s.bouncers[route] = bouncer
		s.watch(bouncer)
	}
	return nil
}

// watch calls bouncerEnded when a pgbouncer ends. Version 1.18 crashes now and then, when
// the server stalls and clients cancel.
func (s *stage) watch(b *pgcluster.Bouncer) {
	if s.bouncerEnded == nil {
		return
	}
	ended := b.Ended()
	go func() {
		<-ended
		s.bouncerEnded()
	}()
}

// reviveBouncers restarts each pgbouncer that has ended.
func (s *stage) reviveBouncers(ctx context.Context) (err error) {
	for _, b := range s.bouncers {
		select {
		case <-b.Ended():
			err = errors.Join(err, s.restart(ctx, b))
		default:
		}
	}
	return err
}

func (s *stage) restartBouncers(ctx context.Context) (err error) {
	for _, b := range s.bouncers {
		err = errors.Join(err, s.restart(ctx, b))
	}
	return err
}

func (s *stage) restart(ctx context.Context, b *pgcluster.Bouncer) error {
	err := b.Restart(ctx)
	s.watch(b)
	return err
}

// dsn returns the candidate's address of the primary.
func (s *stage) dsn(m *fleet.Member) string {
	l := s.links[m.Name]
	opts := []pgcluster.DSNOption{pgcluster.ForRole(fleet.Role), pgcluster.WithParam("connect_timeout", "3")}
	switch {
	case m.Route == proxied:
		return s.proxies[m.ID].DSN(opts...)
	case s.bouncers[m.Route] != nil:
		if m.Route == moved && m.By == "pgx" {
			opts = append(opts, pgcluster.WithParam("default_query_exec_mode", "exec"))
		}
		return s.bouncers[m.Route].DSN(opts...)
	case l != nil:
		return s.primary.DSN(append(opts, func(u *url.URL) { u.Host = net.JoinHostPort(l.server(), strconv.Itoa(s.primary.Port())) })...)
	}
	return s.primary.DSN(opts...)
}

// promote makes the standby the primary and returns the old primary, which may still be
// running.
func (s *stage) promote(ctx context.Context) (old *pgcluster.Cluster, err error) {
	if err := s.standby.Promote(ctx); err != nil {
		return nil, err
	}
	old, s.primary, s.standby = s.primary, s.standby, nil
	s.timeline++
	return old, s.startRoutes(ctx)
}

// replace gives the primary a new standby and stops the server that is gone.
func (s *stage) replace(ctx context.Context, gone *pgcluster.Cluster) error {
	return errors.Join(s.stop(gone), s.newStandby(ctx))
}

func (s *stage) stop(c *pgcluster.Cluster) error {
	if c == nil {
		return nil
	}
	err := c.Stop()
	if dir := s.logs[c]; dir != "" {
		err = errors.Join(err, syscall.Unmount(dir, 0), os.Remove(dir))
		delete(s.logs, c)
	}
	return err
}

// stopAll stops all servers.
func (s *stage) stopAll() error { return errors.Join(s.stop(s.standby), s.stop(s.primary)) }
