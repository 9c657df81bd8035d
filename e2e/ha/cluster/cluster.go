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
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"text/template"
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
	ports    map[Entry]*int // of HAProxy
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
	c := &Cluster{box: box, programs: found, ports: map[Entry]*int{Cutting: new(int), Plain: new(int), Behind: new(int)}}
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
func (c *Cluster) startEtcd(ctx context.Context) error {
	var peer int
	return sandbox.OnFreePorts(ctx, func() error { return c.runEtcd(ctx, peer) }, &c.etcdPort, &peer)
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

// FreezeEtcd stops etcd.
func (c *Cluster) FreezeEtcd() error { return sandbox.Stop(c.etcd.PID) }

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

func (c *Cluster) startHAProxy(ctx context.Context) error {
	return sandbox.OnFreePorts(ctx, func() (err error) {
		config, log := c.box.Path("haproxy.cfg"), c.box.Path("haproxy.log")
		if err = c.box.WriteFile(config, c.haproxyConfig()); err != nil {
			return err
		}
		if c.haproxy, err = c.box.Start(log, c.programs.haproxy, "-db", "-f", config); err != nil {
			return err
		}
		return answers(ctx, c.haproxy, log, *c.ports[Plain])
	}, c.ports[Cutting], c.ports[Plain], c.ports[Behind])
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
func (c *Cluster) Addr(entry Entry) string { return address(*c.ports[entry]) }

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
	return p.AwaitReady(ctx, log, func(ctx context.Context) error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp4", address(port))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Member is a PostgreSQL server and its Patroni.
type Member struct {
	Name    string
	Link    *pgcluster.Proxy   // the other members connect through it
	Bouncer *pgcluster.Bouncer // between HAProxy and the member

	cluster *Cluster
	port    int // of PostgreSQL
	rest    int // of Patroni
	patroni *sandbox.Process
}

var config = template.Must(template.New("").Parse(`scope: ha
namespace: /pgelector/
name: {{.Name}}
restapi: {listen: "{{.REST}}", connect_address: "{{.REST}}"}
etcd3: {host: "{{.Etcd}}"}
bootstrap:
  dcs:
    ttl: {{.TTL}}
    loop_wait: {{.Loop}}
    retry_timeout: {{.Retry}}
    maximum_lag_on_failover: 10485760
    postgresql:
      use_pg_rewind: true
      parameters:
        max_connections: 200
        max_wal_senders: 10
        wal_keep_size: 64MB
        wal_log_hints: "on"
        hot_standby: "on"
        fsync: "off"
        shared_buffers: 16MB
        dynamic_shared_memory_type: mmap
        wal_sender_timeout: 3s
        wal_receiver_timeout: 3s
        wal_retrieve_retry_interval: 100ms
  initdb: [{encoding: UTF8}, {locale: C}, no-sync, data-checksums]
postgresql:
  listen: {{.Listen}}
  connect_address: {{.Link}}
  data_dir: {{.Dir}}/data
  bin_dir: {{.Bin}}
  pgpass: {{.Dir}}/pgpass
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
  authentication:
    superuser: {username: postgres, password: x}
    replication: {username: replicator, password: x}
    rewind: {username: rewinder, password: x}
  pg_hba: ["local all all trust", "host all all 127.0.0.0/8 trust", "host replication all 127.0.0.0/8 trust"]
  parameters: {unix_socket_directories: "", log_line_prefix: "%m [%p] %q%u@%d "}
`))

// newMember configures a member and the proxy in front of it.
func (c *Cluster) newMember(ctx context.Context, name string) (m *Member, err error) {
	m = &Member{Name: name, cluster: c}
	ports := []*int{&m.port, &m.rest}
	for _, port := range ports {
		if *port, err = sandbox.FreePort(); err != nil {
			return nil, err
		}
	}
	if m.Link, err = pgcluster.NewProxy(ctx, m.Addr()); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = config.Execute(&text, map[string]any{
		"Name": name, "REST": address(m.rest), "Etcd": address(c.etcdPort), "Listen": m.Addr(), "Link": m.Link.Addr(),
		"Dir": m.dir(), "Bin": c.programs.postgres, "TTL": int(TTL.Seconds()), "Loop": int(loop.Seconds()), "Retry": int(retry.Seconds()),
	})
	return m, errors.Join(err, c.box.Mkdir(m.dir()), c.box.WriteFile(m.configFile(), text.String()))
}

// Addr returns the host and port of the member's PostgreSQL.
func (m *Member) Addr() string { return address(m.port) }

func (m *Member) dir() string        { return m.cluster.box.Path(m.Name) }
func (m *Member) configFile() string { return m.cluster.box.Path(m.Name + ".yml") }
func (m *Member) logFile() string    { return m.cluster.box.Path(m.Name + ".log") }

// StartPatroni starts Patroni, which starts PostgreSQL.
func (m *Member) StartPatroni() (err error) {
	// PostgreSQL is a daemon: the sandbox finds it by its working directory.
	m.patroni, err = m.cluster.box.StartIn(m.dir(), m.logFile(), m.cluster.programs.patroni, m.configFile())
	return err
}

// KillPatroni ends Patroni with SIGKILL. PostgreSQL keeps running.
func (m *Member) KillPatroni() error {
	err := syscall.Kill(m.patroni.PID, syscall.SIGKILL)
	<-m.patroni.Done
	return err
}

// FreezePatroni stops Patroni.
func (m *Member) FreezePatroni() error { return sandbox.Stop(m.patroni.PID) }

// reinitialize stops a member, removes its data and starts it, so that Patroni copies the
// primary. A member that followed a promoted member which was then lost may ask the primary
// for the lost timeline forever. "patronictl reinit" is no help: it may start a second copy
// while one is running, and then neither ends.
func (m *Member) reinitialize() error {
	copying, err := sandbox.ChildrenOf(m.patroni.PID)
	if err != nil {
		return err
	}
	_ = m.KillPatroni() // it may have ended
	for _, pid := range copying {
		_ = sandbox.Kill(pid)
	}
	data := filepath.Join(m.dir(), "data")
	if pid, err := m.Postmaster(); err == nil {
		// The server may have ended, and another process may have its id.
		if dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); dir == data {
			_ = sandbox.Kill(pid)
		}
	}
	return errors.Join(os.RemoveAll(data), m.StartPatroni())
}

// ThawPatroni resumes Patroni.
func (m *Member) ThawPatroni() error { return syscall.Kill(m.patroni.PID, syscall.SIGCONT) }

// Postmaster returns the process id of the member's postmaster.
func (m *Member) Postmaster() (int, error) {
	content, err := os.ReadFile(filepath.Join(m.dir(), "data", "postmaster.pid"))
	if err != nil {
		return 0, fmt.Errorf("cluster: %s: %w", m.Name, err)
	}
	line, _, _ := bytes.Cut(content, []byte("\n"))
	pid, err := strconv.Atoi(string(bytes.TrimSpace(line)))
	if err != nil {
		return 0, fmt.Errorf("cluster: %s: postmaster.pid says %q", m.Name, line)
	}
	return pid, nil
}

// KillPostmaster ends the postmaster with SIGKILL. Its children end when they notice.
func (m *Member) KillPostmaster() error {
	return m.postmaster(func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) })
}

// KillPostgres ends every process of PostgreSQL with SIGKILL.
func (m *Member) KillPostgres() error { return m.postmaster(sandbox.Kill) }

// FreezePostmaster stops the postmaster: sessions keep working, and new
// connections hang.
func (m *Member) FreezePostmaster() error {
	return m.postmaster(sandbox.Stop)
}

// FreezePostgres stops every process of PostgreSQL.
func (m *Member) FreezePostgres() error {
	return m.postmaster(func(pid int) error {
		_, err := sandbox.Freeze(pid)
		return err
	})
}

// ThawPostgres resumes PostgreSQL after FreezePostgres or FreezePostmaster.
func (m *Member) ThawPostgres() error { return m.postmaster(sandbox.Thaw) }

func (m *Member) postmaster(do func(pid int) error) error {
	pid, err := m.Postmaster()
	if err != nil {
		return err
	}
	return do(pid)
}

// programs are the paths of the programs that a cluster runs.
type programs struct{ postgres, patroni, etcd, haproxy string }

// find looks for every program. PGELECTOR_PG_BIN may name the directory of PostgreSQL's
// programs.
func find(ctx context.Context) (p programs, err error) {
	for program, path := range map[string]*string{"patroni": &p.patroni, "etcd": &p.etcd, "haproxy": &p.haproxy, "pgbouncer": new(string)} {
		if *path, err = sandbox.Find(program); err != nil {
			return p, fmt.Errorf("cluster: %s is not installed; on Debian: apt-get install patroni etcd-server haproxy pgbouncer", program)
		}
	}
	if p.postgres, err = pgcluster.FindBinaries(ctx); err != nil {
		return p, err
	}
	for _, program := range []string{"pg_basebackup", "pg_rewind"} { // a downloaded PostgreSQL lacks them
		if _, err := os.Stat(filepath.Join(p.postgres, program)); err != nil {
			return p, fmt.Errorf("cluster: Patroni needs %s: %w", program, err)
		}
	}
	return p, nil
}

// Missing returns the reason why no cluster can be started here, or nil.
func Missing(ctx context.Context) error {
	_, err := find(ctx)
	return err
}
