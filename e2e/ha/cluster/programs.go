//go:build unix

package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// programs are the paths of what a cluster runs.
type programs struct{ postgres, patroni, etcd, haproxy string }

// find looks for every program. PostgreSQL's are a folder, which
// PGELECTOR_PG_BIN names, as everywhere.
func find(ctx context.Context) (p programs, err error) {
	if p.postgres, err = pgcluster.FindBinaries(ctx); err != nil {
		return p, err
	}
	for program, path := range map[string]*string{"patroni": &p.patroni, "etcd": &p.etcd, "haproxy": &p.haproxy} {
		if *path, err = look(program); err != nil {
			return p, err
		}
	}
	_, err = look("pgbouncer")
	return p, err
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
