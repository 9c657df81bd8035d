//go:build unix

package command_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/sandbox"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/seat"
)

func keyOf(election string) int64 { return elector.KeyFromName(election) }

func TestKeyIsWhatItsSQLComputes(t *testing.T) {
	t.Parallel()
	conn := connection(t, shared.Get(t).DSN())
	for _, election := range []string{"orders", "it's", `back\slash`, `both '\ at once`, "Ünïcödé", "a;b"} {
		r := invoke(t, nil, "key", "--", election)
		key, sql, _ := strings.Cut(r.out, "\n")
		if want := strconv.FormatInt(keyOf(election), 10); key != want {
			t.Errorf("%q: key %s, want %s", election, key, want)
		}
		var computed int64
		if err := conn.QueryRow(t.Context(), sql).Scan(&computed); err != nil || strconv.FormatInt(computed, 10) != key {
			t.Errorf("%q: the SQL computes %d, error %v:\n%s", election, computed, err, sql)
		}
	}
}

// database makes a new database.
func database(t *testing.T) (dsn string) {
	t.Helper()
	base := unique("base")
	check(t, shared.Get(t).CreateDatabase(t.Context(), base))
	return shared.Get(t).DSN(pgcluster.ForDatabase(base))
}

func TestStatusShowsTheLeaderAndTheQueueInOrder(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	invoke(t, at(dsn), "status").want(t, exit.OK, "Nobody leads or waits")
	invoke(t, at(dsn), "status", "billing").want(t, exit.Negative, "nobody leads")
	leading := lead(t, dsn, "billing", "first")
	for i, id := range []string{"second", "third"} {
		// The test itself waits in the queue: run's waits are short, and each starts at the end of the queue.
		queueUp(t, dsn, id, "billing", i+1)
	}
	table := invoke(t, at(dsn), "status", "billing", "nightly")
	table.want(t, exit.Negative, "first", "waits, 1.", "waits, 2.", "ago)", "nobody leads")
	if table.err != "" {
		t.Errorf("each call repeats %q", table.err)
	}
	if strings.Index(table.out, "second") > strings.Index(table.out, "third") {
		t.Errorf("the order is wrong:\n%s", table.out)
	}
	for _, driver := range []string{"pgx", "pq"} {
		var got struct {
			Elections []struct {
				Name, Key string
				Token     any
				Leader    *struct {
					Candidate, User, Address string
					PID                      int
					SessionSince             time.Time `json:"session_at"`
				}
				Waiting []struct {
					Candidate    string
					WaitingSince time.Time `json:"queued_at"`
				}
			}
		}
		r := invoke(t, at(dsn), "status", "--driver", driver, "--json", "billing", "nightly")
		check(t, json.Unmarshal([]byte(r.out), &got))
		if len(got.Elections) != 2 || got.Elections[1].Leader != nil || got.Elections[0].Leader == nil {
			t.Fatalf("got %s", r.out)
		}
		e := got.Elections[0]
		if e.Name != "billing" || e.Key != fmt.Sprint(keyOf("billing")) || e.Token != nil || e.Leader.Candidate != "first" ||
			e.Leader.Address != "127.0.0.1" || e.Leader.User != "postgres" || e.Leader.PID == 0 || e.Leader.SessionSince.IsZero() {
			t.Errorf("got %s", r.out)
		}
		if len(e.Waiting) != 2 || e.Waiting[0].Candidate != "second" || e.Waiting[1].Candidate != "third" || e.Waiting[0].WaitingSince.IsZero() {
			t.Errorf("waiting: %s", r.out)
		}
	}
	invoke(t, at(dsn), "status").want(t, exit.OK, "key "+fmt.Sprint(keyOf("billing")), "first")
	if r := invoke(t, at(dsn), "status", "--json"); strings.Contains(r.out, "token") {
		t.Errorf("a token that is not known is in the JSON: %s", r.out)
	}
	leading.stops(t)
}

// queueUp waits for the lock on a new session with that application name, as the n-th.
func queueUp(t *testing.T, dsn, id, election string, n int) {
	t.Helper()
	conn := connection(t, dsn+"&application_name="+id)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = conn.Exec(ctx, "SELECT pg_advisory_lock($1)", keyOf(election))
	}()
	t.Cleanup(func() { cancel(); <-done })
	look := connection(t, dsn)
	eventually(t, id+" waits for the lock", func() bool {
		var waiting int
		check(t, look.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND waitstart IS NOT NULL
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND ((classid::bigint << 32) | objid::bigint) = $1`, keyOf(election)).Scan(&waiting))
		return waiting == n
	})
}

func TestWatchReportsEachChange(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	people := launch(t, at(dsn), "watch", name(t), "--interval", "20ms")
	programs := launch(t, at(dsn), "watch", name(t), "--interval", "20ms", "--json", "--driver", "pq")
	change := func() (c struct{ Election, Event, Previous string }) {
		check(t, json.Unmarshal([]byte(programs.says(t, "")), &c))
		return c
	}
	expect := func(event, previous, text string) {
		t.Helper()
		if c := change(); c.Event != event || c.Previous != previous || c.Election != name(t) {
			t.Errorf("got %+v, want %s after %q", c, event, previous)
		}
		if line := people.says(t, ""); !strings.Contains(line, text) {
			t.Errorf("got %q, want %q", line, text)
		}
	}
	expect("vacant", "", "nobody leads")
	r := run(t, name(t), "--candidate", "one", "--", "sh", "-c", "exec sleep 1000")
	expect("leads", "", "one leads")
	r.signal(t, 15)
	expect("vacant", "one", "nobody leads, after one")
	r.ends(t, exit.SignalBase+15)
	for _, w := range []*running{people, programs} {
		w.signal(t, 2)
		w.ends(t, 130)
	}
}

func TestEvictEndsTheLeadersSession(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	invoke(t, at(dsn), "evict", name(t), "--yes").want(t, exit.Negative, "nothing to evict")
	r := lead(t, dsn, name(t), "victim")
	invoke(t, at(dsn), "evict", name(t)).want(t, exit.Negative, "victim", "[y/N]", "use --yes")
	invoke(t, at(dsn), "status", name(t)).want(t, exit.OK, "victim")
	asked := exec.Command(built(t), "evict", name(t))
	asked.Env, asked.Stdin = append(asked.Environ(), at(dsn)...), strings.NewReader("n\n")
	if out, _ := asked.CombinedOutput(); asked.ProcessState.ExitCode() != exit.Negative {
		t.Errorf("exit code %d\n%s", asked.ProcessState.ExitCode(), out)
	}
	second := run(t, name(t), "--candidate", "second", "--", "sh", "-c", "echo ready; exec sleep 1000")
	eventually(t, "there is a deputy", func() bool { return strings.Contains(invoke(t, at(dsn), "status", name(t)).out, "second") })
	asked = exec.Command(built(t), "evict", name(t))
	asked.Env, asked.Stdin = append(asked.Environ(), at(dsn)...), strings.NewReader("y\n")
	if out, err := asked.CombinedOutput(); err != nil || !strings.Contains(string(out), "Evicted: ") || !strings.Contains(string(out), "second leads (backend ") {
		t.Errorf("error %v\n%s", err, out)
	}
	second.says(t, "ready")
	r.ends(t, exit.Lost)
}

// A process that is stopped, or hangs in the kernel, does not end.
func TestABackendThatHangsIsShownAndNotEvicted(t *testing.T) {
	t.Parallel()
	dsn := own(t).DSN()
	lead(t, dsn, "x", "first")
	var pid int
	check(t, connection(t, dsn).QueryRow(t.Context(), "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1").Scan(&pid))
	check(t, sandbox.Stop(pid))
	defer func() { check(t, syscall.Kill(pid, syscall.SIGCONT)) }()
	eventually(t, "status says that the leader is silent", func() bool {
		r := invoke(t, at(dsn), "status", "x")
		return r.code == exit.Negative && strings.Contains(r.out, "silent") && strings.Contains(r.err, "Nobody leads x: the lease of first")
	})
	evicted := invoke(t, at(dsn), "evict", "x", "--yes", "--timeout", "5s")
	evicted.want(t, exit.Negative, "still holds the lock: it hangs", fmt.Sprintf("kill -CONT %d", pid), "leader-is-silent")
	if strings.Contains(evicted.err, "could not connect") {
		t.Errorf("it says %s", evicted.err)
	}
}

func TestDashboardServesThePage(t *testing.T) {
	t.Parallel()
	r := launch(t, at(database(t)), "dashboard", "--listen", "127.0.0.1:0", "billing")
	address := strings.TrimSuffix("127.0.0.1:"+r.says(t, "http://127.0.0.1:"), "/")
	if page := get(t, address, "/"); page.status != http.StatusOK || !strings.Contains(page.body, "billing") {
		t.Errorf("got %+v", page)
	}
	invoke(t, at(database(t)), "dashboard", "--listen", address).want(t, exit.Failure, "--listen "+address, "in use")
	invoke(t, at(database(t)), "dashboard", "--listen", "nowhere").want(t, exit.Usage, "--listen")
	r.stops(t)
}

func TestResignAsksTheLeaderToHandOver(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	invoke(t, at(dsn), "resign", name(t)).want(t, exit.Negative, "nobody leads")
	invoke(t, at(dsn), "resign", name(t), "--wait", "0s").want(t, exit.Usage, "--wait")
	invoke(t, at(dsn), "resign", name(t), "--to", strings.Repeat("x", 64)).want(t, exit.Usage, "63 bytes")
	first := lead(t, dsn, name(t), "first")
	second := run(t, name(t), "--candidate", "asked", "--lease", "30s", "--", "sh", "-c", "trap '' TERM; echo ready; sleep 1000")
	eventually(t, "the second follows", func() bool { return strings.Contains(invoke(t, at(dsn), "status", name(t)).out, "asked") })
	invoke(t, at(dsn), "resign", name(t), "--to", "asked", "--driver", "pq").want(t, exit.OK, "asked leads")
	second.says(t, "ready")
	first.ends(t, exit.Lost)
	invoke(t, at(dsn), "status", name(t)).want(t, exit.OK, "30s")
	invoke(t, at(dsn), "status", name(t), "--json").want(t, exit.OK, `"lease_ms": 30000`, `"scope": "session"`, `"elected_at": "`)
	second.signal(t, syscall.SIGSTOP)
	invoke(t, at(dsn), "resign", name(t), "--to", "nobody", "--wait", "2s").want(t, exit.Negative, `it may wait for "nobody", or first for others, for up to one lease each, `)
	invoke(t, at(dsn), "resign", name(t), "--wait", "2s").want(t, exit.Negative, `candidate "asked", backend `, "pgelector evict")
}

func TestResignLeavesTheLeaderInOfficeIfTheSuccessorDoesNotCome(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	invoke(t, at(dsn), "resign", name(t), "--or-anyone").want(t, exit.Usage, "--to")
	first := lead(t, dsn, name(t), "first", "--lease", "10s")
	invoke(t, at(dsn), "resign", name(t), "--to", "nobody").want(t, exit.Negative, `"nobody" did not come in time; first leads now`)
	invoke(t, at(dsn), "resign", name(t), "--to", "nobody", "--or-anyone").want(t, exit.OK)
	first.ends(t, exit.Lost)
}

func TestARoleWhoseNameHasControlCharactersDoesNotControlTheTerminal(t *testing.T) {
	t.Parallel()
	c := shared.Get(t)
	const forged, quoted = "orders  leads  evil", `"red\x1b[31m\norders  leads  evil`
	role := unique("red\x1b[31m\n" + forged)
	check(t, c.Exec(t.Context(), "CREATE ROLE "+pgx.Identifier{role}.Sanitize()+" LOGIN"))
	release := occupy(t, c.DSN(pgcluster.ForRole(role)), name(t))
	defer release()
	high, low := lockkey.Halves(seat.Key(keyOf(name(t))))
	_, err := connection(t, c.DSN(pgcluster.ForRole(role))).Exec(t.Context(), "SELECT pg_advisory_lock($1, $2)", high, low)
	check(t, err)
	status := invoke(t, at(c.DSN()), "status", name(t))
	status.want(t, exit.OK, quoted)
	asJSON := invoke(t, at(c.DSN()), "status", "--json", name(t))
	asJSON.want(t, exit.OK, `red\u001b[31m\n`)
	doctor := invoke(t, at(c.DSN()), "doctor")
	doctor.want(t, exit.OK, "user "+quoted)
	watch := launch(t, at(c.DSN()), "watch", name(t))
	if line := watch.says(t, ""); !strings.Contains(line, "user "+quoted) || !strings.HasSuffix(line, ", deputy -") {
		t.Errorf("watch printed %q", line)
	}
	watch.signal(t, 2)
	watch.ends(t, 130)
	refused := invoke(t, at(c.DSN(pgcluster.ForRole(role+"2"))), "status", name(t))
	refused.want(t, exit.Connect, `red\u001b[31m`)
	for _, r := range []result{status, asJSON, doctor, refused} {
		if strings.ContainsRune(r.out+r.err, '\x1b') || strings.Contains(r.out, "\n"+forged) {
			t.Errorf("control characters in %q %q", r.out, r.err)
		}
	}
}

func TestEvictSaysWhichPrivilegeIsMissing(t *testing.T) {
	t.Parallel()
	c := shared.Get(t)
	role := unique("bystander")
	check(t, c.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN"))
	release := occupy(t, c.DSN(), name(t))
	defer release()
	bystander := at(c.DSN(pgcluster.ForRole(role)))
	for _, driver := range []string{"pgx", "pq"} {
		invoke(t, bystander, "evict", name(t), "--yes", "--driver", driver).want(t, exit.Privilege, "pg_signal_backend")
	}
	invoke(t, bystander, "status", name(t)).want(t, exit.OK, "may not see addresses", "GRANT pg_read_all_stats")
	invoke(t, bystander, "doctor").want(t, exit.OK, "GRANT pg_read_all_stats", "GRANT pg_signal_backend")
}

// recommended returns the lease that doctor recommends.
func recommended(t *testing.T, r result) time.Duration {
	t.Helper()
	_, text, _ := strings.Cut(r.out, "Recommended lease: ")
	text, _, _ = strings.Cut(text, ". ")
	lease, err := time.ParseDuration(text)
	if err != nil || lease < 10*time.Second {
		t.Errorf("recommends a lease of %q, error %v:\n%s", text, err, r.out)
	}
	return lease
}

func TestDoctorReportsEachCheck(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	for driver, loss := range map[string]string{"pgx": "ok    loss", "pq": "note  loss"} {
		r := invoke(t, at(dsn), "doctor", "--driver", driver)
		lease := recommended(t, r)
		r.want(t, exit.OK, "after at most "+lease.String()+" plus the deputy interval", "2 of the server's connections for 1 election with the takeover deputy (the default)", "; elections without it work",
			loss, "\n\nsession scope: yes\ntransaction scope: yes\n\nyes          session lock  ")
		if !strings.HasPrefix(r.out, "Elections run safely here") {
			t.Errorf("the verdict is not first:\n%s", r.out)
		}
		trips := "warn  round trip" // on a busy machine
		if lease == 10*time.Second {
			trips = "ok    round trip"
		}
		r.want(t, exit.OK, trips)
		for _, check := range []string{"connection", "version", "recovery", "pooler", "advisory locks", "settings", "privileges",
			"lock table", "connections", "clocks", "InTx"} {
			if !strings.Contains(r.out, "ok    "+check) {
				t.Errorf("%s: not ok: %s\n%s", driver, check, r.out)
			}
		}
	}
	invoke(t, at(dsn+"&connect_timeout=10"), "doctor").want(t, exit.OK, "ok    connecting")
	invoke(t, at(dsn+"&connect_timeout=60"), "doctor").want(t, exit.OK, "warn  connecting", "set it to at most 30")
	invoke(t, at(dsn), "doctor", "--driver", "pq").want(t, exit.OK, "warn  connecting", "there is no connect_timeout")
	invoke(t, at(dsn+"&statement_timeout=7000"), "doctor").want(t, exit.OK, "statement_timeout = 7s")
	invoke(t, at(dsn), "doctor", "--lease", "1ms").want(t, exit.Usage, "--lease 1ms")
}

// What only lib/pq knows would be a parameter that the server does not know, if pgx connected.
func TestDoctorConnectsWithTheChosenDriver(t *testing.T) {
	t.Parallel()
	c := shared.Get(t)
	for _, param := range [][2]string{{"binary_parameters", "yes"}, {"hostaddr", "127.0.0.1"}, {"load_balance_hosts", "random"}} {
		dsn := c.DSN(pgcluster.WithParam(param[0], param[1]))
		invoke(t, at(dsn), "doctor", "--driver", "pq").want(t, exit.OK, "ok    pooler", "none that shares backends", "Elections run safely here")
		invoke(t, at(dsn), quick(name(t), "--driver", "pq", "--", "true")...).want(t, exit.OK)
	}
}

// pg_read_all_stats would not help.
func TestDoctorSaysThatSessionsDoNotTrackTheirActivity(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	leading := lead(t, dsn, "billing", "first")
	second := launch(t, at(dsn+"&track_activities=off"), quick("billing", "--", "sh", "-c", "echo ready; exec sleep 1000")...)
	eventually(t, "doctor sees the deputy", func() bool {
		r := invoke(t, at(dsn), "doctor")
		if strings.Contains(r.out, "GRANT pg_read_all_stats") {
			t.Errorf("it advises a superuser: %s", r.out)
		}
		return strings.Contains(r.out, "track_activities is off")
	})
	leading.stops(t)
	second.says(t, "ready")
	eventually(t, "status says it of the leader", func() bool {
		r := invoke(t, at(dsn), "status", "billing")
		return r.code == exit.OK && strings.Contains(r.out, "s, not tracked") && strings.Contains(r.err, "track_activities is off for its session") && !strings.Contains(r.err, "GRANT")
	})
	second.stops(t)
}

func TestDoctorWritesJSON(t *testing.T) {
	t.Parallel()
	var got struct {
		Healthy  bool
		Lease    float64 `json:"recommended_lease_s"`
		Findings []struct{ Level, Check, Text string }
	}
	c := shared.Get(t)
	check(t, json.Unmarshal([]byte(invoke(t, at(c.DSN()), "doctor", "--json").out), &got))
	if !got.Healthy || got.Lease < 10 || len(got.Findings) < 10 || got.Findings[0].Level != "ok" || got.Findings[0].Check != "connection" {
		t.Errorf("got %+v", got)
	}
	check(t, json.Unmarshal([]byte(invoke(t, at(c.DSN(pgcluster.WithParam("port", "1"))), "doctor", "--json").out), &got))
	if last := got.Findings[len(got.Findings)-1]; got.Healthy || last.Level != "FAIL" || last.Check != "connection" || !strings.Contains(last.Text, "connection refused") {
		t.Errorf("got %+v", got)
	}
}

// No question takes the timeout, and all that measure the round trip take longer. So do all that
// look for a pooler, each of some seven round trips.
func TestDoctorGivesEachQuestionItsTimeout(t *testing.T) {
	t.Parallel()
	c := own(t)
	far := func(t *testing.T, upstream string, more ...string) {
		t.Parallel()
		proxy, err := pgcluster.NewProxy(t.Context(), upstream)
		check(t, err)
		t.Cleanup(func() { _ = proxy.Close() })
		proxy.Slow(100*time.Millisecond, 0) // each way
		invoke(t, at(proxy.DSN()), "doctor", "--timeout", "4s").want(t, exit.OK, append(more, "Elections run safely here")...)
	}
	t.Run("the server", func(t *testing.T) { far(t, c.Addr()) })
	t.Run("a pooler in session mode", func(t *testing.T) {
		bouncer := bounced(t, c, pgcluster.Session, pgcluster.WithPoolSize(20))
		far(t, bouncer.Addr(), "session mode", "real: a trial election")
	})
}

func TestDoctorWarnsOfASlowLinkAndFewConnections(t *testing.T) {
	t.Parallel()
	c := own(t)
	check(t, c.Exec(t.Context(), "CREATE ROLE few LOGIN CONNECTION LIMIT 6; CREATE ROLE many LOGIN NOINHERIT; GRANT pg_read_all_stats, pg_signal_backend TO many"))
	invoke(t, at(c.DSN(pgcluster.ForRole("few"))), "doctor").want(t, exit.OK, "warn  connections", "CONNECTION LIMIT")
	for range 3 { // which others hold, and the role sees little of
		connection(t, c.DSN())
	}
	crowd := invoke(t, at(c.DSN(pgcluster.ForRole("many"))), "doctor")
	crowd.want(t, exit.OK, "can evict only leaders of its own role")
	var old bool // then it need not inherit pg_read_all_stats
	check(t, connection(t, c.DSN()).QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int < 150000").Scan(&old))
	if blind := strings.Contains(crowd.out, "does not see the address and start of other roles' leaders"); blind == old {
		t.Errorf("before PostgreSQL 15 %v, and it does not see other roles' sessions %v:\n%s", old, blind, crowd.out)
	}
	_, used, _ := strings.Cut(crowd.out, "ok    connections      ")
	if n, err := strconv.Atoi(strings.Split(used, " ")[0]); err != nil || n < 4 {
		t.Errorf("%d connections are in use, at least 4 are:\n%s", n, crowd.out)
	}
	proxy, err := c.Proxy(t.Context())
	check(t, err)
	proxy.Slow(50*time.Millisecond, 0) // each way, so a lease of 5 s is too short
	slow := invoke(t, at(proxy.DSN()), "doctor", "--lease", "4s")
	_, text, _ := strings.Cut(slow.out, ", worst ")
	text, _, _ = strings.Cut(text, " of 20")
	worst, err := time.ParseDuration(text)
	check(t, err)
	if worst >= 2800*time.Millisecond { // on a busy machine: as long as that lease is valid
		slow.want(t, exit.Refused, "FAIL  round trip")
		return
	}
	slow.want(t, exit.OK, "warn  round trip")
	recommended(t, slow)
}

// withDatabase makes a database. It returns its address and a function that sets its epoch.
func withDatabase(t *testing.T) (env []string, setEpoch func(string)) {
	t.Helper()
	c, name := shared.Get(t), unique("database")
	check(t, c.CreateDatabase(t.Context(), name))
	return at(c.DSN(pgcluster.ForDatabase(name))), func(epoch string) {
		check(t, c.Exec(t.Context(), "ALTER DATABASE "+name+" SET pgelector.epoch = '"+epoch+"'"))
	}
}

func TestDoctorShowsThePartsOfTheTokenAndComparesEpochs(t *testing.T) {
	t.Parallel()
	env, setEpoch := withDatabase(t)
	invoke(t, env, "doctor").want(t, exit.OK, "ok    token", ": timeline 1, transaction ", "epoch 0\n")
	invoke(t, env, "doctor", "--token-epoch", "4").want(t, exit.OK, "note  token", "timeline 1, ", "epoch 4 (--token-epoch): set the same for every candidate")
	setEpoch("3")
	for _, driver := range []string{"pgx", "pq"} {
		invoke(t, env, "doctor", "--driver", driver).want(t, exit.OK, "ok    token", "timeline 1, ", "epoch 3 (pgelector.epoch of the database)\n")
	}
	invoke(t, env, "doctor", "--token-epoch", "3").want(t, exit.OK, "ok    token", "epoch 3\n")
	invoke(t, env, "doctor", "--token-epoch", "4").want(t, exit.OK, "warn  token", "timeline 1, ", "epoch 4", "of the database is 3")
	invoke(t, env, "doctor", "--token-epoch", "2").want(t, exit.OK, "warn  token", "timeline 1, ", "epoch 3", "larger than --token-epoch 2")
	setEpoch("three")
	invoke(t, env, "doctor").want(t, exit.Refused, "FAIL  token", `pgelector.epoch of this database is "three"`, "ALTER DATABASE")
	invoke(t, env, "doctor", "--token-epoch", "32767").want(t, exit.Usage, "--token-epoch 32767: want 0 <= n <= 32766")
	invoke(t, env, "doctor", "--last-token=-1").want(t, exit.Usage, "--last-token -1")
}

// The epoch that doctor names is the smallest that suffices.
func TestDoctorNamesTheEpochThatMakesNewTokensLarger(t *testing.T) {
	t.Parallel()
	const large, small = 1<<48 - 1, 1 // transaction ids
	for name, c := range map[string]struct {
		last   int64
		needed int
	}{
		"an older transaction":                {1<<48 | small, 0},
		"a later transaction":                 {1<<48 | large, 1},
		"a later timeline":                    {5<<48 | small, 4},
		"a later timeline and transaction":    {5<<48 | large, 5},
		"the last timeline that there can be": {32767<<48 | small, 32766},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, setEpoch := withDatabase(t)
			doctor := func() result { return invoke(t, env, "doctor", "--last-token", fmt.Sprint(c.last)) }
			larger := "ok    last token       " + fmt.Sprint(c.last)
			if c.needed > 0 {
				setEpoch(fmt.Sprint(c.needed - 1))
				doctor().want(t, exit.Refused, "FAIL  last token", fmt.Sprintf("SET pgelector.epoch = '%d'", c.needed), fmt.Sprintf("WithTokenEpoch(%d)", c.needed))
			}
			setEpoch(fmt.Sprint(c.needed))
			doctor().want(t, exit.OK, larger, "new tokens are larger")
		})
	}
	env, _ := withDatabase(t)
	invoke(t, env, "doctor", "--last-token", fmt.Sprint(int64(32767<<48|large))).want(t, exit.Refused, "no epoch can make them so")
}

func TestTheEpochRaisesTheTokenOfTheCommand(t *testing.T) {
	t.Parallel()
	args := quick(name(t), append([]string{"--token-epoch", "5"}, sh("[ $((PGELECTOR_TOKEN >> 48)) = 6 ]")...)...)
	invoke(t, at(shared.Get(t).DSN()), args...).want(t, exit.OK)
}

// lib/pq waits for an answer whatever its context says.
func TestEvictEndsOnADeadLink(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	release := occupy(t, dsn, name(t))
	defer release()
	way, err := shared.Get(t).Proxy(t.Context())
	check(t, err)
	for _, driver := range []string{"pgx", "pq"} {
		r, stdin := held(t, at(way.DSN()), "evict", name(t), "--driver", driver, "--timeout", "3s")
		r.says(t, "ELECTION")
		r.says(t, name(t))
		way.BlackHole()
		_, err = stdin.Write([]byte("y\n"))
		check(t, err)
		r.ends(t, exit.Connect)
		way.Heal()
	}
}

// Nobody leads, and nobody can be elected: each command says who is in the way, and what to do.
func TestEachCommandNamesWhoBlocksAnElection(t *testing.T) {
	t.Parallel()
	c := own(t, pgcluster.WithSetting("max_prepared_transactions", "2"))
	check(t, c.Exec(t.Context(), fmt.Sprintf("BEGIN; SELECT pg_advisory_xact_lock(%d); PREPARE TRANSACTION 'the culprit'", keyOf("billing"))))
	const says = "ROLLBACK PREPARED 'the culprit'"
	queueUp(t, c.DSN(), "first", "billing", 1)
	invoke(t, at(c.DSN()), "status", "billing").want(t, exit.Negative, "nobody leads", says)
	invoke(t, at(c.DSN()), "status").want(t, exit.OK, "nobody leads", says)
	invoke(t, at(c.DSN()), "status", "--json", "billing").want(t, exit.Negative, `"blockers": [`, says)
	invoke(t, at(c.DSN()), "evict", "--yes", "billing").want(t, exit.Negative, "nobody leads", says)
	invoke(t, at(c.DSN()), "resign", "billing").want(t, exit.Negative, "nobody leads", says)
	invoke(t, at(c.DSN()), "doctor").want(t, exit.OK, "warn  elections", says)
	check(t, c.Exec(context.Background(), "ROLLBACK PREPARED 'the culprit'"))
}
