//go:build unix

package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// Two processes check their health by a command. A third one looks, by status.
func TestAHealthCommandStepsDownAndIsSeenByOthers(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pgx", "pq"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := shared.Get(t).DSN()
			schema, full := unique("health"), filepath.Join(t.TempDir(), "full")
			checks := []string{"--driver", driver, "--roster", schema, "--health-interval", "300ms", "--health-command"}
			first := launch(t, at(dsn), again(name(t), append(append([]string{"--candidate", "one"}, checks...), "if test -e "+full+"; then echo disk full; exit 1; fi; echo fine", "--", "sh", "-c", "echo ready; exec sleep 1000")...)...)
			first.says(t, "ready")
			second := launch(t, at(dsn), again(name(t), append(append([]string{"--candidate", "two"}, checks...), "true", "--", "sh", "-c", "echo leads; exec sleep 1000")...)...)
			sees := func(texts ...string) {
				t.Helper()
				eventually(t, "status shows "+strings.Join(texts, ", "), func() bool {
					r := invoke(t, at(dsn), "status", "--driver", driver, "--roster", schema, name(t))
					for _, text := range texts {
						if !strings.Contains(r.out, text) {
							return false
						}
					}
					return true
				})
			}
			sees("1: fine", "two", " left")
			invoke(t, at(dsn), "status", "--json", name(t)).want(t, exit.OK, `"alive": "yes"`, `"lease_ends_at": "`)
			role := unique("bystander")
			check(t, shared.Get(t).Exec(t.Context(), "CREATE ROLE "+role+" LOGIN"))
			invoke(t, at(shared.Get(t).DSN(pgcluster.ForRole(role))), "status", "--json", name(t)).want(t, exit.OK, `"alive": "cannot tell"`, `"lease_ms": 30000`)
			invoke(t, at(shared.Get(t).DSN(pgcluster.ForRole(role))), "status", name(t)).want(t, exit.OK, "30s, hidden", "GRANT pg_read_all_stats")
			if err := os.WriteFile(full, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			second.says(t, "leads")
			sees("0, unhealthy: disk full")
			invoke(t, at(dsn), "status", "--roster", schema, "--json", name(t)).want(t, exit.OK, `"why": "disk full"`, `"healthy": false`, `"minimum": 0.5`, `"checked_at": "`)
		})
	}
}
