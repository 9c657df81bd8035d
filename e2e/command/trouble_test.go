//go:build unix

package command_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/impostors"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// asking are the subcommands that query a server, except run.
var asking = [][]string{{"status"}, {"status", "x"}, {"watch", "x"}, {"evict", "x", "--yes"}, {"doctor"}}

func TestEveryCommandRefusesAStandby(t *testing.T) {
	t.Parallel()
	primary := own(t)
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	for _, driver := range []string{"pgx", "pq"} {
		for _, command := range append(asking, quick("x", "--read-only-timeout", "1s", "--", "echo", "ran"), quick("x", "--read-only-timeout", "0", "--if-free", "--", "echo", "ran")) {
			args := append([]string{command[0], "--driver", driver}, command[1:]...)
			code := exit.Connect // temporary: the connection string may find the primary later
			if command[0] == "doctor" {
				code = exit.Refused
			}
			r := invoke(t, at(standby.DSN()), args...)
			r.want(t, code, "standby")
			if strings.Contains("\n"+r.out, "\nran") {
				t.Error("the command ran")
			}
		}
	}
}

func TestRestartRetriesUntilTheStandbyIsPromoted(t *testing.T) {
	t.Parallel()
	primary := own(t)
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	r := launch(t, at(standby.DSN()), again("x", "--read-only-timeout", "0", "--", "sh", "-c", "echo ready; exec sleep 1000")...)
	eventually(t, "it is refused", func() bool { return strings.Contains(r.errs.String(), "exit status 69") })
	check(t, standby.Promote(t.Context()))
	r.says(t, "ready")
	r.stops(t)
}

func TestCommandsThatLeadRefuseAStatementPooler(t *testing.T) {
	t.Parallel()
	c := own(t)
	bouncer := bounced(t, c, pgcluster.Statement)
	env := at(bouncer.DSN())
	for _, driver := range []string{"pgx", "pq"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel() // a refusal takes ten seconds
			r := invoke(t, env, quick(driver, "--driver", driver, "--", "echo", "ran")...)
			r.want(t, exit.Refused, "pooler")
			if strings.Contains(r.out, "ran") {
				t.Error("the command ran")
			}
			examined := invoke(t, env, "doctor", "--driver", driver)
			examined.want(t, exit.Refused, "FAIL  pooler", "in statement mode", "Elections cannot run safely here: fix what says FAIL: pooler")
			if strings.Contains(examined.out, "elections without it work") || strings.Contains(examined.out, "note  need") {
				t.Errorf("where no election works, doctor says what one needs, or that one works:\n%s", examined.out)
			}
			// status, watch and evict need no session.
			conn := connection(t, c.DSN(pgcluster.WithParam("application_name", "me")))
			_, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock($1)", keyOf(driver))
			check(t, err)
			invoke(t, env, "status", "--driver", driver, driver).want(t, exit.OK, "leads", "me")
			w := launch(t, env, "watch", "--driver", driver, driver)
			w.says(t, "")
			w.signal(t, 2)
			w.ends(t, 130)
			invoke(t, env, "evict", "--driver", driver, driver, "--yes").want(t, exit.OK, "Evicted")
		})
	}
}

const password = "correct-horse-battery"

func TestEveryCommandReportsAWrongPasswordAndNeverShowsIt(t *testing.T) {
	t.Parallel()
	c := guarded(t, password)
	const wrong = "wrong-staple-password"
	url := strings.Replace(c.DSN(pgcluster.ForRole("app")), "app@", "app:"+wrong+"@", 1)
	pairs := fmt.Sprintf("host=127.0.0.1 port=%d user=app dbname=postgres sslmode=disable password=%s", c.Port(), wrong)
	for _, driver := range []string{"pgx", "pq"} {
		for _, command := range append(asking, quick("x", "--log-level", "trace", "--", "echo", "ran"), quick("x", "--log-json", "--if-free", "--", "echo", "ran")) {
			for _, dsn := range []string{url, pairs} {
				args := append([]string{command[0], "--driver", driver, "--dsn", dsn}, command[1:]...)
				r := invoke(t, []string{"DATABASE_URL="}, args...)
				r.want(t, exit.Connect, "could not connect")
				if strings.Contains(r.out+r.err, wrong) {
					t.Errorf("%s %s shows the password:\n%s%s", driver, command[0], r.out, r.err)
				}
			}
		}
	}
}

// A further attempt would not help, so run gives up.
func TestEveryCommandReportsARefusedConnection(t *testing.T) {
	t.Parallel()
	c := own(t)
	for _, statement := range []string{"CREATE ROLE app LOGIN", "CREATE DATABASE closed", "REVOKE CONNECT ON DATABASE closed FROM PUBLIC"} {
		check(t, c.Exec(t.Context(), statement))
	}
	for _, tt := range []struct {
		dsn  string
		code int
		says string
	}{
		{c.DSN(pgcluster.ForRole("nobody")), exit.Connect, "nobody"},
		{c.DSN(pgcluster.ForDatabase("nowhere")), exit.Connect, "nowhere"},
		{c.DSN(pgcluster.WithParam("bogus", "1")), exit.Connect, "bogus"},
		{c.DSN(pgcluster.ForRole("app"), pgcluster.ForDatabase("closed")), exit.Privilege, "permission denied"},
	} {
		for _, driver := range []string{"pgx", "pq"} {
			for _, command := range append(asking, quick("x", "--", "echo", "ran")) {
				args := append([]string{command[0], "--driver", driver}, command[1:]...)
				invoke(t, at(tt.dsn), args...).want(t, tt.code, tt.says)
			}
		}
	}
}

func TestWatchPrintsOneLineWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	r := launch(t, at("postgres://nobody@127.0.0.1:1/x?host=127.0.0.1,127.0.0.1"), "watch", "x", "--interval", "10ms")
	if line := r.says(t, ""); !strings.Contains(line, "leader unknown") || strings.Count(line, "connection refused") < 2 {
		t.Errorf("got %q", line)
	}
	select {
	case line := <-r.lines:
		t.Errorf("and another line: %q", line)
	case <-time.After(500 * time.Millisecond):
	}
	r.signal(t, 2)
	r.ends(t, 130)
}

func TestTheDatabaseIsFoundAsPsqlFindsIt(t *testing.T) {
	t.Parallel()
	c := guarded(t, password)
	port := strconv.Itoa(c.Port())
	dir := t.TempDir()
	passfile, service := filepath.Join(dir, "pgpass"), filepath.Join(dir, "services")
	check(t, os.WriteFile(passfile, []byte("127.0.0.1:"+port+":*:app:"+password+"\n"), 0o600))
	check(t, os.WriteFile(service, []byte("[mine]\nhost=127.0.0.1\nport="+port+"\nuser=app\ndbname=postgres\n"), 0o600))
	dsn := "postgres://app:" + password + "@127.0.0.1:" + port + "/postgres?sslmode=disable"
	variables := []string{"PGHOST=127.0.0.1", "PGPORT=" + port, "PGUSER=app", "PGDATABASE=postgres"}
	for what, env := range map[string][]string{
		"DATABASE_URL":      at(dsn),
		"PG* and password":  append(variables, "PGPASSWORD="+password),
		"PG* and passfile":  append(variables, "PGPASSFILE="+passfile),
		"service, passfile": {"PGSERVICEFILE=" + service, "PGSERVICE=mine", "PGPASSFILE=" + passfile},
		"URL and variables": append(at("postgres:///postgres"), append(variables, "PGPASSWORD="+password)...),
	} {
		for _, driver := range []string{"pgx", "pq"} {
			r := invoke(t, append([]string{"DATABASE_URL="}, env...), "status", "--driver", driver)
			if r.code != exit.OK {
				t.Errorf("%s, %s: exit code %d\n%s", what, driver, r.code, r.err)
			}
		}
	}
	invoke(t, at("postgres://nobody@127.0.0.1:1/"), "status", "--dsn", dsn).want(t, exit.OK) // the flag comes first
}

// As when a secret is rotated, and the server restarts later.
func TestAPasswordThatChangesInItsFileIsFound(t *testing.T) {
	t.Parallel()
	c := guarded(t, password)
	dir := t.TempDir()
	passfile, services := filepath.Join(dir, "pgpass"), filepath.Join(dir, "services")
	write := func(password string) {
		t.Helper()
		check(t, os.WriteFile(passfile, []byte("127.0.0.1:*:*:app:"+password+"\n"), 0o600))
		check(t, os.WriteFile(services, fmt.Appendf(nil, "[mine]\nhost=127.0.0.1\nport=%d\nuser=app\ndbname=postgres\npassword=%s\n", c.Port(), password), 0o600))
	}
	write(password)
	all := map[string]*running{}
	for _, driver := range []string{"pgx", "pq"} {
		for file, env := range map[string][]string{
			"passfile": append(at(c.DSN(pgcluster.ForRole("app"))), "PGPASSFILE="+passfile),
			"services": {"DATABASE_URL=", "PGSERVICEFILE=" + services, "PGSERVICE=mine"},
		} {
			r := launch(t, env, again(driver+file, append([]string{"--driver", driver}, sh("echo ran; exec sleep 1000")...)...)...)
			r.says(t, "ran")
			all[driver+file] = r
		}
	}
	const next = "another-staple-password"
	check(t, c.Exec(t.Context(), "ALTER ROLE app PASSWORD '"+next+"'"))
	write(next)
	for election, r := range all {
		terminate(t, c.DSN(), election)
		r.says(t, "ran")
		r.stops(t)
	}
}

func TestOutputThatCannotBeWrittenIsNoConnectionThatFailed(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	for _, args := range [][]string{{"doctor", "--json"}, {"doctor"}, {"watch", "x", "--json"}, {"watch", "x"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		check(t, err)
		cmd := exec.Command(built(t), args...)
		cmd.Env = append(os.Environ(), at(shared.Get(t).DSN())...)
		cmd.Stdout = full
		var errs strings.Builder
		cmd.Stderr = &errs
		_ = cmd.Run()
		check(t, full.Close())
		if code := cmd.ProcessState.ExitCode(); code != exit.Failure || strings.Contains(errs.String(), "could not connect") {
			t.Errorf("%q: exit code %d\n%s", args, code, errs.String())
		}
	}
}

func TestPsShowsNoPassword(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the arguments can be overwritten on Linux only")
	}
	c := guarded(t, password)
	dsn := "postgres://app:" + password + "@127.0.0.1:" + strconv.Itoa(c.Port()) + "/postgres?sslmode=disable"
	for _, args := range [][]string{{"--dsn", dsn}, {"--dsn=" + dsn}} {
		r := launch(t, []string{"DATABASE_URL="}, append(quick("x", args...), "--", "sh", "-c", "echo self $$; sleep 1000; true")...)
		self := r.pid(t, "self ")
		for _, pid := range []int{r.cmd.Process.Pid, parent(t, self), self} {
			shown, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			check(t, err)
			if strings.Contains(string(shown), password) || len(shown) == 0 {
				t.Errorf("ps shows %q", shown)
			}
		}
		r.stops(t)
		if strings.Contains(r.errs.String(), password) {
			t.Error("the logs show the password")
		}
	}
}

// The processes of a command are found in /proc. A campaign may take days.
func TestWithoutProcRunFailsBeforeItIsElected(t *testing.T) {
	t.Parallel()
	const unmounted = `umount -l /proc && exec "$@"`
	if runtime.GOOS != "linux" || exec.Command("unshare", "--mount", "sh", "-c", unmounted, "sh", "true").Run() != nil {
		t.Skip("not allowed to unmount /proc")
	}
	started := func(args ...string) *exec.Cmd {
		cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", unmounted, "sh", built(t)}, args...)...)
		cmd.Env = append(os.Environ(), at(shared.Get(t).DSN())...)
		return cmd
	}
	for _, args := range [][]string{quick(name(t), "--", "echo", "ran"), {"run", "--group", name(t), "--shards", "1", "--", "echo", "ran"}} {
		r := launchCommand(t, started(args...))
		r.logs(t, "run needs /proc")
		r.ends(t, exit.Failure)
		r.silent(t, patience)
		if strings.Contains(r.errs.String(), "elected") {
			t.Errorf("%q: it was elected", args)
		}
	}
	leading := launchCommand(t, started("lead", name(t), "--http", freeAddress(t))) // it runs no command
	leading.logs(t, "elected")
	leading.stops(t)
}

func TestRunAndWatchSurviveAnOutageOfTheDatabase(t *testing.T) {
	t.Parallel()
	c := own(t)
	env := at(c.DSN())
	watch := launch(t, env, "watch", "x", "--interval", "50ms")
	watch.says(t, "")
	leading := launch(t, env, again("x", "--", "sh", "-c", "echo token $PGELECTOR_TOKEN; exec sleep 1000")...)
	first := leading.pid(t, "token ")
	check(t, c.Shutdown(t.Context(), pgcluster.Fast))
	// While the database is away, the other commands fail, and run waits.
	for _, command := range append([][]string{{"status"}, {"evict", "x", "--yes"}, {"doctor"}},
		quick("x", "--if-free", "--", "echo", "ran"), quick("x", "--max-attempts", "2", "--", "echo", "ran")) {
		invoke(t, env, command...).want(t, exit.Connect, "could not connect")
	}
	waiting := launch(t, env, quick("y", "--", "echo", "ran")...)
	waiting.logs(t, "attempt failed")
	leading.logs(t, "leadership lost")
	for !strings.Contains(watch.says(t, ""), "leader unknown") {
	}
	check(t, c.Resume(t.Context()))
	waiting.says(t, "ran")
	waiting.ends(t, exit.OK)
	if second := leading.pid(t, "token "); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	for !strings.Contains(watch.says(t, ""), " leads (backend") {
	}
	leading.stops(t)
	watch.stops(t)
}

// What the other subcommands send is of packages db and roster: see TestImpostorsInTheSearchPathAreNotCalled.
func TestDoctorAndKeyCallNoImpostor(t *testing.T) {
	t.Parallel()
	c := own(t)
	statements, err := impostors.Statements("../..")
	check(t, err)
	check(t, c.CreateDatabase(t.Context(), "beset"))
	_, err = impostors.Plant(t.Context(), connection(t, c.DSN(pgcluster.ForDatabase("beset"))), statements)
	check(t, err)
	for role, path := range map[string]string{"open": `"$user", public`, "beset": "public, pg_catalog"} {
		check(t, c.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN; ALTER ROLE "+role+" SET search_path = "+path))
		dsn := c.DSN(pgcluster.ForDatabase("beset"), pgcluster.ForRole(role))
		for _, driver := range []string{"pgx", "pq"} {
			invoke(t, at(dsn), "doctor", "--driver", driver).want(t, exit.OK, "Elections run safely here. ", "Recommended lease")
		}
		_, sql, _ := strings.Cut(invoke(t, nil, "key", "orders").out, "\n")
		var key int64
		if err := connection(t, dsn).QueryRow(t.Context(), sql).Scan(&key); err != nil || key != keyOf("orders") {
			t.Errorf("got %d, %v", key, err)
		}
	}
	log, err := c.ServerLog()
	check(t, err)
	if i := strings.Index(log, "impostor"); i >= 0 {
		t.Errorf("the server's log names an impostor: %s", log[i:min(i+500, len(log))])
	}
}

func TestTheCommandsWorkThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	c := own(t)
	bouncer := bounced(t, c, pgcluster.Transaction, pgcluster.WithPoolSize(20))
	t.Cleanup(func() {
		if t.Failed() {
			said, err := bouncer.Log()
			t.Logf("pgbouncer's log: %v\n%s", err, said[max(0, len(said)-3000):])
		}
	})
	check(t, bouncer.ShieldCancels(t.Context()))
	const session = "session scope: 14 of the server's connections for 7 elections with the takeover deputy (the default) or wait, 7 with poll"
	const inside = "transaction scope: 7 of the server's connections for 7 elections with the takeover poll (the default there), 14 with deputy or wait"
	for driver, dsn := range map[string]string{"pgx": bouncer.DSN(pgcluster.WithParam("default_query_exec_mode", "exec")), "pq": bouncer.DSN()} {
		invoke(t, at(dsn), "doctor", "--driver", driver, "--elections", "7").want(t, exit.OK, "in transaction mode", "won in transaction scope", inside)
		invoke(t, at(c.DSN()), "doctor", "--driver", driver, "--elections", "7").want(t, exit.OK, "ok    pooler           none", "won in session scope", session, inside)
		invoke(t, at(dsn), "resign", driver, "--driver", driver).want(t, exit.Negative, "nobody leads")
		address := freeAddress(t)
		first := lead(t, dsn, driver, "first", "--driver", driver, "--http", address)
		first.logs(t, "transaction scope")
		expectGet(t, address, "/metrics", http.StatusOK, `pgelector_transaction_scope{election="`+driver+`"} 1`+"\n")
		watching := launch(t, at(dsn), "watch", driver, "--interval", "20ms", "--json", "--driver", driver)
		watching.says(t, `{`)
		second := follow(t, dsn, driver, "second", "--driver", driver)
		second.logs(t, "transaction scope")
		invoke(t, at(dsn), "status", driver, "--json", "--driver", driver).want(t, exit.OK, `"candidate": "first"`, `"scope": "transaction"`)
		invoke(t, at(dsn), "resign", driver, "--to", "second", "--driver", driver).want(t, exit.OK, "second leads")
		eventually(t, "second is ready", func() bool { return strings.Contains(second.says(t, ""), "ready") })
		first.ends(t, exit.Lost)
		eventually(t, "watch tells of the second", func() bool { return strings.Contains(watching.says(t, ""), "second") })
	}
}
