//go:build unix

// Package cluster runs a high-availability PostgreSQL cluster on loopback: etcd, three
// PostgreSQL members under Patroni, HAProxy with Patroni's health checks, and PgBouncer in
// session mode, both in front of HAProxy and behind it.
//
//	client ─ multi-host DSN ──────────────────────────▶ members
//	client ─▶ HAProxy (Cutting, Plain) ───────────────▶ the primary
//	client ─▶ PgBouncer (Front) ─▶ HAProxy (Plain) ───▶ the primary
//	client ─▶ HAProxy (Behind) ─▶ each member's PgBouncer ─▶ the primary
//
// Members reach each other through proxies, so that replication can be cut.
//
// The cluster runs in one sandbox (package sandbox), which cleans up in whatever way this
// process ends. It needs Debian's packages postgresql, patroni, etcd-server, haproxy and
// pgbouncer, or equivalents; [Missing] reports what is missing.
//
// Nothing is durable or protected. Methods of a cluster and of its members must not run
// concurrently, except those that only read: Members, [Member.Addr].
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/sandbox"
)

// Patroni's periods. They are short, so that much happens. TTL is how long a primary
// remains primary after Patroni's last confirmation.
const (
	TTL   = 8 * time.Second
	loop  = 1 * time.Second
	retry = 3 * time.Second
)

// size is the number of members.
const size = 3

// readyTimeout bounds how long a program may take to become ready.
const readyTimeout = 3 * time.Minute

// Cluster is a running cluster.
type Cluster struct {
	Members []*Member
	Front   *pgcluster.Bouncer // in front of HAProxy
	// Reinitialized names the members that AwaitHealthy has reinitialized, in order.
	Reinitialized []string

	box      *sandbox.Sandbox
	programs programs
	etcd     *sandbox.Process
	haproxy  *sandbox.Process
	etcdPort int
	ports    map[Entry]int // of HAProxy
}

// An Entry is one of HAProxy's addresses. Each leads to the primary.
type Entry string

const (
	Cutting Entry = "cutting" // cuts the connections to a server that is no longer the primary (on-marked-down shutdown-sessions)
	Plain   Entry = "plain"   // keeps those connections
	Behind  Entry = "behind"  // leads to the PgBouncer of the primary
)

// Start starts a cluster. It returns when the primary takes writes and the standbys stream.
// The caller must call Stop. On failure nothing is left behind.
func Start(ctx context.Context) (_ *Cluster, err error) {
	found, err := find(ctx)
	if err != nil {
		return nil, err
	}
	box, err := sandbox.New()
	if err != nil {
		return nil, err
	}
	c := &Cluster{box: box, programs: found, ports: map[Entry]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := c.startEtcd(ctx); err != nil {
		return nil, err
	}
	for i := range size {
		m, err := c.newMember(ctx, fmt.Sprint("n", i+1))
		if err != nil {
			return nil, err
		}
		c.Members = append(c.Members, m)
		if err := m.StartPatroni(); err != nil {
			return nil, err
		}
	}
	if err := c.AwaitHealthy(ctx); err != nil {
		return nil, err
	}
	return c, c.startRoutes(ctx)
}

// Stop ends all programs, in whatever state they are, and removes their files.
func (c *Cluster) Stop() error {
	var errs []error
	if c.Front != nil {
		errs = append(errs, c.Front.Stop())
	}
	for _, m := range c.Members {
		if m.Bouncer != nil {
			errs = append(errs, m.Bouncer.Stop())
		}
	}
	errs = append(errs, c.box.Destroy())
	for _, m := range c.Members {
		errs = append(errs, m.Link.Close())
	}
	return errors.Join(errs...)
}

// startEtcd starts etcd on free ports.
func (c *Cluster) startEtcd(ctx context.Context) (err error) {
	for range sandbox.PortAttempts {
		var peer int
		if c.etcdPort, err = sandbox.FreePort(); err != nil {
			return err
		}
		if peer, err = sandbox.FreePort(); err != nil {
			return err
		}
		if err = c.runEtcd(ctx, peer); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (c *Cluster) runEtcd(ctx context.Context, peer int) error {
	client, peers := "http://"+address(c.etcdPort), "http://"+address(peer)
	log := c.box.Path("etcd.log")
	// The variable allows etcd to run on every architecture.
	p, err := c.box.Start(log, "/usr/bin/env", "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH, c.programs.etcd, "--name", "e",
		"--data-dir", c.box.Path("etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "e="+peers)
	if err != nil {
		return err
	}
	c.etcd = p
	return answers(ctx, p, log, c.etcdPort)
}

// AwaitNoLeader waits until nobody holds Patroni's leader lock in etcd. The lock of a leader
// that is gone expires after its TTL.
func (c *Cluster) AwaitNoLeader(ctx context.Context) error {
	const leader = `{"key": "L3BnZWxlY3Rvci9oYS9sZWFkZXI="}` // /pgelector/ha/leader
	return c.await(ctx, "a cluster without a leader", func(ctx context.Context) error {
		said, err := request(ctx, http.MethodPost, "http://"+address(c.etcdPort)+"/v3/kv/range", leader)
		if err == nil && strings.Contains(said, `"kvs"`) {
			err = fmt.Errorf("etcd says %s", said)
		}
		return err
	})
}

// FreezeEtcd stops etcd with SIGSTOP.
func (c *Cluster) FreezeEtcd() error { return syscall.Kill(c.etcd.PID, syscall.SIGSTOP) }

// ThawEtcd resumes etcd.
func (c *Cluster) ThawEtcd() error { return syscall.Kill(c.etcd.PID, syscall.SIGCONT) }

// startRoutes starts the poolers and proxies between clients and members.
func (c *Cluster) startRoutes(ctx context.Context) (err error) {
	for _, m := range c.Members {
		if m.Bouncer, err = pgcluster.NewBouncer(ctx, m.Addr(), pgcluster.Session, pgcluster.WithPoolSize(30)); err != nil {
			return err
		}
	}
	if err := c.startHAProxy(ctx); err != nil {
		return err
	}
	c.Front, err = pgcluster.NewBouncer(ctx, c.Addr(Plain), pgcluster.Session, pgcluster.WithPoolSize(30))
	return err
}

func (c *Cluster) startHAProxy(ctx context.Context) (err error) {
	for range sandbox.PortAttempts {
		for _, entry := range []Entry{Cutting, Plain, Behind} {
			if c.ports[entry], err = sandbox.FreePort(); err != nil {
				return err
			}
		}
		if err = c.box.WriteFile(c.box.Path("haproxy.cfg"), c.haproxyConfig()); err != nil {
			return err
		}
		log := c.box.Path("haproxy.log")
		if c.haproxy, err = c.box.Start(log, c.programs.haproxy, "-db", "-f", c.box.Path("haproxy.cfg")); err != nil {
			return err
		}
		if err = answers(ctx, c.haproxy, log, c.ports[Plain]); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// haproxyConfig makes HAProxy ask each Patroni every second whether its member is the primary.
// After two failures HAProxy marks the member down, which takes less than TTL.
func (c *Cluster) haproxyConfig() string {
	var b strings.Builder
	b.WriteString("global\n  maxconn 1000\ndefaults\n  mode tcp\n  retries 2\n  timeout client 30m\n  timeout server 30m\n" +
		"  timeout connect 2s\n  timeout check 1s\n")
	for _, entry := range []Entry{Cutting, Plain, Behind} {
		fmt.Fprintf(&b, "listen %s\n  bind %s\n  option httpchk OPTIONS /primary\n  http-check expect status 200\n", entry, c.Addr(entry))
		b.WriteString("  default-server inter 1s fall 2 rise 1")
		if entry != Plain {
			b.WriteString(" on-marked-down shutdown-sessions")
		}
		b.WriteString("\n")
		for _, m := range c.Members {
			to := m.Addr()
			if entry == Behind {
				to = m.Bouncer.Addr()
			}
			fmt.Fprintf(&b, "  server %s %s check port %d\n", m.Name, to, m.rest)
		}
	}
	return b.String()
}

// Addr returns the host and port of one of HAProxy's entries.
func (c *Cluster) Addr(entry Entry) string { return address(c.ports[entry]) }

// Hosts returns the members' addresses for a multi-host DSN.
func (c *Cluster) Hosts() string {
	var hosts []string
	for _, m := range c.Members {
		hosts = append(hosts, m.Addr())
	}
	return strings.Join(hosts, ",")
}

func address(port int) string { return net.JoinHostPort(sandbox.Loopback, strconv.Itoa(port)) }

// answers waits until the port accepts connections.
func answers(ctx context.Context, p *sandbox.Process, log string, port int) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp4", address(port))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.Done:
			return fmt.Errorf("cluster: the program did not start (%w); its output:\n%s", p.Err, sandbox.Tail(log))
		case <-ctx.Done():
			return fmt.Errorf("cluster: nobody listens on %s (%w); the log says:\n%s", address(port), context.Cause(ctx), sandbox.Tail(log))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
