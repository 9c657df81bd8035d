//go:build unix

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"text/template"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/sandbox"
)

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

// FreezePatroni stops Patroni with SIGSTOP.
func (m *Member) FreezePatroni() error { return syscall.Kill(m.patroni.PID, syscall.SIGSTOP) }

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

// FreezePostmaster stops the postmaster with SIGSTOP: sessions keep working, and new
// connections hang.
func (m *Member) FreezePostmaster() error {
	return m.postmaster(func(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) })
}

// FreezePostgres stops every process of PostgreSQL with SIGSTOP.
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
		if *path, err = look(program); err != nil {
			return p, err
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

// look finds a program, also in directories that an ordinary user's $PATH lacks.
func look(program string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("cluster: %s is not installed; on Debian: apt-get install patroni etcd-server haproxy pgbouncer", program)
}

// Missing returns the reason why no cluster can be started here, or nil.
func Missing(ctx context.Context) error {
	_, err := find(ctx)
	return err
}
