//go:build unix

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// programs are the paths of what a cluster runs.
type programs struct{ postgres, patroni, etcd, haproxy string }

// find looks for every program. PostgreSQL's are a folder, which
// PGELECTOR_PG_BIN names, as everywhere.
func find(ctx context.Context) (p programs, err error) {
	for program, path := range map[string]*string{"patroni": &p.patroni, "etcd": &p.etcd, "haproxy": &p.haproxy, "pgbouncer": new(string)} {
		if *path, err = look(program); err != nil {
			return p, err
		}
	}
	if p.postgres, err = pgcluster.FindBinaries(ctx); err != nil {
		return p, err
	}
	for _, program := range []string{"pg_basebackup", "pg_rewind"} { // a PostgreSQL that was fetched for tests lacks them
		if _, err := os.Stat(filepath.Join(p.postgres, program)); err != nil {
			return p, fmt.Errorf("cluster: Patroni needs %s: %w", program, err)
		}
	}
	return p, nil
}

// look finds a program where an ordinary user's $PATH does not lead, too.
func look(program string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("cluster: %s is not installed; on Debian: apt-get install patroni etcd-server haproxy pgbouncer", program)
}

// Missing returns why no cluster can be started here, nil if one can.
func Missing(ctx context.Context) error {
	_, err := find(ctx)
	return err
}
