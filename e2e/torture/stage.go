//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/replay"
)

// stage is the servers, and the poolers and proxies in front of them. All methods must be
// called by one goroutine.
type stage struct {
	namespaces bool // the program runs in separate namespaces
	lockDelay  bool // every candidate has WithLockDelay

	primary, standby *pgcluster.Cluster
	timeline         int64
	logs             map[*pgcluster.Cluster]string // the file system of each server's write-ahead log

	links map[string]*link // by candidate
	wired int              // links made so far

	proxies  map[string]*pgcluster.Proxy        // by seat
	tape     replay.Tape                        // of who is behind a proxy
	seated   sync.Map                           // seat to candidate
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
			s.proxies[seat.ID].Watch(func() pgcluster.Watcher {
				who, _ := s.seated.Load(seat.ID)
				return s.tape.Watch(who.(string))
			})
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

// newFleet returns the candidates of a stage. It calls fail when a candidate ends unexpectedly.
func newFleet(s *stage, seed uint64, fail context.CancelCauseFunc) *fleet.Fleet {
	linked := func(m *fleet.Member) bool { return m.Route == linked && s.namespaces }
	all := slices.Clone(seats)
	for i := range all {
		all[i].LockDelay = s != nil && s.lockDelay
	}
	return fleet.New(fleet.Config{
		Seats: all,
		Seed:  seed,
		DSN:   s.dsn,
		Ended: func(m *fleet.Member) { fail(m.Err()) },
		Prepare: func(m *fleet.Member, cmd *exec.Cmd) {
			if linked(m) {
				cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
			}
		},
		Started: func(m *fleet.Member) (err error) {
			s.seated.Store(m.ID, m.Name)
			if linked(m) {
				s.wired++
				s.links[m.Name], err = newLink(s.wired, m.PID())
			}
			return err
		},
	})
}

// The candidates' routes.
const (
	direct  fleet.Route = "direct"
	proxied fleet.Route = "proxy"     // each with its own proxy
	pooled  fleet.Route = "pgbouncer" // in session mode, shared by all
	moved   fleet.Route = "pgbouncer, transaction mode"
	linked  fleet.Route = "link" // from a separate network namespace
)

// modes are those of the poolers, by route.
var modes = map[fleet.Route]pgcluster.PoolMode{pooled: pgcluster.Session, moved: pgcluster.Transaction}

var seats = []fleet.Seat{
	{ID: "a", By: "pgx", Route: direct, Draws: true},
	{ID: "b", By: "postgres", Route: direct, Draws: true},
	{ID: "c", By: "pgx", Route: proxied, Draws: true},
	{ID: "d", By: "postgres", Route: proxied, Draws: true},
	{ID: "e", By: "pgx", Route: pooled, Session: true},
	{ID: "f", By: "postgres", Route: pooled, Draws: true},
	{ID: "g", By: "pgx", Route: linked, Draws: true},
	{ID: "h", By: "postgres", Route: linked, Session: true},
	{ID: "i", By: "pgx", Route: moved, Draws: true},
	{ID: "j", By: "postgres", Route: moved, Draws: true},
}

// link is a virtual cable between this program's network namespace and a process's. It
// disappears with the process.
type link struct {
	number int
	pid    int
}

// newLink creates the cable.
func newLink(number, pid int) (*link, error) {
	l := &link{number: number%250 + 1, pid: pid}
	far := l.name() + "far"
	return l, errors.Join(
		command("ip", "link", "add", l.name(), "type", "veth", "peer", "name", far),
		command("ip", "link", "set", far, "netns", strconv.Itoa(pid)),
		command("ip", "addr", "add", l.server()+"/30", "dev", l.name()),
		command("ip", "link", "set", l.name(), "up"),
		l.inside("ip", "link", "set", far, "name", "near"),
		l.inside("ip", "addr", "add", l.candidate()+"/30", "dev", "near"),
		l.inside("ip", "link", "set", "near", "up"),
	)
}

func (l *link) name() string      { return fmt.Sprintf("c%d", l.number) }
func (l *link) server() string    { return fmt.Sprintf("10.77.%d.1", l.number) }
func (l *link) candidate() string { return fmt.Sprintf("10.77.%d.2", l.number) }

// inside runs a program in the process's network namespace.
func (l *link) inside(program string, args ...string) error {
	return command("nsenter", append([]string{"--target", strconv.Itoa(l.pid), "--net", program}, args...)...)
}

func (l *link) down() error { return command("ip", "link", "set", l.name(), "down") }
func (l *link) up() error   { return command("ip", "link", "set", l.name(), "up") }

// nobody is an unused hardware address: frames to it are lost silently.
const nobody = "02:00:00:00:00:01"

// deafen drops what the server sends, mute what the candidate sends.
func (l *link) deafen() error {
	return command("ip", "neigh", "replace", l.candidate(), "lladdr", nobody, "nud", "permanent", "dev", l.name())
}

func (l *link) mute() error {
	return l.inside("ip", "neigh", "replace", l.server(), "lladdr", nobody, "nud", "permanent", "dev", "near")
}

func (l *link) hear() error {
	return command("sh", "-c", forget, "forget", l.candidate(), l.name())
}

func (l *link) speak() error {
	return l.inside("sh", "-c", forget, "forget", l.server(), "near")
}

// forget removes a hardware address, unless it is already gone: a link that goes down removes
// it too.
const forget = `ip neigh del "$1" dev "$2" || [ -z "$(ip neigh show to "$1" dev "$2" nud permanent)" ]`

// insideVariable marks the copy of the program that runs in new namespaces.
const insideVariable = "PGELECTOR_TORTURE_INSIDE"

// inNamespaces calls fn in a copy of this program with new network and mount namespaces. If
// that is not possible, it calls fn here, with the reason.
func inNamespaces(fn func(without error) int) int {
	if os.Getenv(insideVariable) != "" {
		os.Unsetenv(insideVariable)
		return fn(command("ip", "link", "set", "lo", "up"))
	}
	if os.Geteuid() != 0 {
		return fn(errors.New("an ordinary user may not make network and mount namespaces"))
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fn(fmt.Errorf("iproute2 is not installed: %w", err))
	}
	program, err := os.Executable()
	if err != nil {
		return fn(err)
	}
	inside := exec.Command(program, os.Args[1:]...)
	inside.Env = append(os.Environ(), insideVariable+"=1")
	inside.Stdout, inside.Stderr = os.Stdout, os.Stderr
	inside.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 8) // the terminal sends Ctrl-C to the copy, too, which cleans up
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := inside.Start(); err != nil {
		signal.Stop(signals)
		return fn(fmt.Errorf("namespaces are not allowed here: %w", err))
	}
	go func() {
		for s := range signals {
			_ = inside.Process.Signal(s)
		}
	}()
	_ = inside.Wait()
	return max(inside.ProcessState.ExitCode(), -inside.ProcessState.ExitCode())
}

// command runs a program and returns its output in the error.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %q: %w: %s", name, args, err, out)
	}
	return nil
}
