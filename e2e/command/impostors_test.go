//go:build unix

package command_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/impostors"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// subcommands are the subcommands that query the server.
var subcommands = map[string]func(t *testing.T, env []string, driver string){
	"run": func(t *testing.T, env []string, driver string) {
		for _, how := range [][]string{nil, {"--watch"}, {"--standby", "wait"}, {"--if-free"}} {
			r := launch(t, env, quick("orders", append(append(how, "--driver", driver), sh("echo ready; sleep 0.5")...)...)...)
			r.says(t, "ready")
			r.ends(t, exit.OK)
		}
	},
	"status": func(t *testing.T, env []string, driver string) {
		invoke(t, env, "status", "--driver", driver).want(t, exit.OK, "leads")
		invoke(t, env, "status", "--driver", driver, "--json", "billing").want(t, exit.OK, "session_since")
	},
	"watch": func(t *testing.T, env []string, driver string) {
		w := launch(t, env, "watch", "billing", "--interval", "20ms", "--driver", driver)
		for !strings.Contains(w.says(t, ""), "leads") {
		}
		w.signal(t, 2)
		w.ends(t, 130)
	},
	"doctor": func(t *testing.T, env []string, driver string) {
		invoke(t, env, "doctor", "--driver", driver).want(t, exit.OK, "Recommended lease")
	},
	"evict": func(t *testing.T, env []string, driver string) {
		invoke(t, env, "evict", "billing", "--yes", "--driver", driver).want(t, exit.OK, "Evicted")
	},
	"key": func(t *testing.T, env []string, _ string) {
		_, sql, _ := strings.Cut(invoke(t, env, "key", "orders").out, "\n")
		_, dsn, _ := strings.Cut(env[0], "=")
		var key int64
		if err := connection(t, dsn).QueryRow(t.Context(), sql).Scan(&key); err != nil || key != keyOf("orders") {
			t.Errorf("got %d, %v", key, err)
		}
	},
}

// local are the subcommands that need no server.
var local = []string{"completion", "help", "man", "version"}

func TestNoSubcommandCallsAnImpostor(t *testing.T) {
	t.Parallel()
	c := own(t)
	statements, err := impostors.Statements("../..")
	check(t, err)
	check(t, c.CreateDatabase(t.Context(), "beset"))
	_, err = impostors.Plant(t.Context(), connection(t, c.DSN(pgcluster.ForDatabase("beset"))), statements)
	check(t, err)
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+) +[A-Z]`).FindAllStringSubmatch(invoke(t, nil, "--help").out, -1) {
		seen[m[1]] = true
	}
	for _, name := range local {
		delete(seen, name)
	}
	for name := range maps.Keys(subcommands) {
		if !seen[name] {
			t.Errorf("there is no subcommand %s", name)
		}
		delete(seen, name)
	}
	if len(seen) > 0 {
		t.Errorf("not tested: %v", seen)
	}
	for role, path := range map[string]string{"open": `"$user", public`, "beset": "public, pg_catalog"} {
		check(t, c.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN; ALTER ROLE "+role+" SET search_path = "+path))
		env := at(c.DSN(pgcluster.ForDatabase("beset"), pgcluster.ForRole(role)))
		for _, driver := range []string{"pgx", "pq"} {
			leading := launch(t, env, quick("billing", append([]string{"--restart", "--driver", driver}, sh("echo ready; exec sleep 1000")...)...)...)
			leading.says(t, "ready")
			for name, try := range subcommands {
				try(t, env, driver)
				if name == "evict" {
					leading.says(t, "ready") // again
				}
			}
			leading.signal(t, 15)
			leading.ends(t, 128+15)
		}
	}
	log, err := c.ServerLog()
	check(t, err)
	if i := strings.Index(log, "impostor"); i >= 0 {
		t.Errorf("the server's log names an impostor: %s", log[i:min(i+500, len(log))])
	}
}

// A superuser runs doctor on a database in which other roles may create objects.
func TestDoctorDoesNotLetAnotherRoleBecomeSuperuser(t *testing.T) {
	t.Parallel()
	c := own(t)
	check(t, c.CreateRole(t.Context(), "stranger", nil))
	admin := connection(t, c.DSN())
	_, err := admin.Exec(t.Context(), "GRANT CREATE ON SCHEMA public TO PUBLIC") // as it is before PostgreSQL 15
	check(t, err)
	_, err = connection(t, c.DSN(pgcluster.ForRole("stranger"))).Exec(t.Context(), `
		CREATE FUNCTION public.seize(numeric, integer) RETURNS numeric LANGUAGE plpgsql AS $$
		BEGIN
			IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN ALTER ROLE stranger SUPERUSER; END IF;
			RETURN $1;
		END $$;
		CREATE OPERATOR public.* (FUNCTION = public.seize, LEFTARG = numeric, RIGHTARG = integer)`)
	check(t, err)
	const crowned = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = 'stranger'"
	var super bool
	for _, driver := range []string{"pgx", "pq"} {
		invoke(t, at(c.DSN()), "doctor", "--driver", driver).want(t, exit.OK, "Recommended lease")
		check(t, admin.QueryRow(t.Context(), crowned).Scan(&super))
		if super {
			t.Error("the stranger is a superuser")
		}
	}
	_, err = admin.Exec(t.Context(), "SELECT 1.5 * 2") // an unqualified operator
	check(t, err)
	check(t, admin.QueryRow(t.Context(), crowned).Scan(&super))
	if !super {
		t.Error("the trap does not work")
	}
}
