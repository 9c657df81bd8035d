//go:build unix

package command_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/sandbox"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/shard"
)

const shardsOfTest = 6

// A shardCommand says which shard it has. The file's lock is held until its last process is gone.
const shardCommand = `exec 9>"$DIR/$PGELECTOR_SHARD"; flock -n 9 || echo overlap $PGELECTOR_SHARD
trap 'echo end $PGELECTOR_SHARD; exit 0' TERM
sleep 1000 & echo begin $PGELECTOR_SHARD $PPID $! $PGELECTOR_GROUP $PGELECTOR_SHARDS $PGELECTOR_ELECTION
wait`

// A host is a run with shards, and what its commands have said.
type host struct {
	*running
	*testing.T
	guards, children map[string]int // by shard, while its command runs
	begun            map[string]int
	overlap          bool
}

func hosts(t *testing.T, flags ...string) (join func(more ...string) *host) {
	dir, group := t.TempDir(), unique("group")
	return func(more ...string) *host {
		args := sharing(group, shardsOfTest, slices.Concat([]string{"--lease", "30s", "--drain", "1s"}, flags, more, sh(shardCommand))...)
		return &host{running: launch(t, append(at(shared.Get(t).DSN()), "DIR="+dir), args...), T: t,
			guards: map[string]int{}, children: map[string]int{}, begun: map[string]int{}}
	}
}

// leads reads what the commands have said so far, and returns the shards that run.
func (h *host) leads() []string {
	h.Helper()
	for {
		select {
		case line, open := <-h.lines:
			if !open {
				return nil
			}
			h.hear(line)
		default:
			return slices.Sorted(maps.Keys(h.guards))
		}
	}
}

func (h *host) hear(line string) {
	h.Helper()
	what, rest, _ := strings.Cut(line, " ")
	name, _, _ := strings.Cut(rest, " ")
	switch what {
	case "overlap":
		h.overlap = true
	case "end":
		delete(h.guards, name)
	case "begin":
		var guard, child int
		if n, err := fmt.Sscanf(rest, name+" %d %d", &guard, &child); n != 2 {
			h.Fatalf("%q: %v", line, err)
		}
		if group := strings.Fields(rest)[3]; !strings.HasSuffix(rest, fmt.Sprintf(" %s %d %s/%s", group, shardsOfTest, group, name)) {
			h.Errorf("the environment of a command: %q", line)
		}
		h.guards[name], h.children[name] = guard, child
		h.begun[name]++
	default:
		h.Errorf("said %q", line)
	}
}

// share waits until the hosts run all shards, and each of them as many.
func share(t *testing.T, all ...*host) {
	t.Helper()
	eventually(t, "each host runs its share", func() bool {
		var led []string
		for _, h := range all {
			shards := h.leads()
			if len(shards) != shardsOfTest/len(all) {
				return false
			}
			led = append(led, shards...)
		}
		slices.Sort(led)
		return len(slices.Compact(led)) == shardsOfTest
	})
	for _, h := range all {
		if h.overlap {
			t.Error("two commands of the same shard ran at the same time")
		}
	}
}

func TestHostsShareShardsAndRunOneCommandForEach(t *testing.T) {
	t.Parallel()
	join := hosts(t)
	first, second := join(), join()
	share(t, first, second)
	third := join()
	share(t, first, second, third)
	first.signal(t, syscall.SIGTERM)
	share(t, second, third)
	first.ends(t, exit.OK)
	if errs := first.errs.String(); !strings.Contains(errs, `cause="ended by terminated"`) {
		t.Errorf("it does not say why its commands ended:\n%s", errs)
	}
	second.signal(t, syscall.SIGKILL)
	second.silent(t, patience) // its guards kill its commands
	third.overlap = false
	eventually(t, "the last one runs all", func() bool { return len(third.leads()) == shardsOfTest })
	third.stops(t)
	third.silent(t, patience)
}

func TestNoHostRunsMoreThanItsMostAndTheRestIsReported(t *testing.T) {
	t.Parallel()
	join := hosts(t, "--most", "2")
	address := freeAddress(t)
	first, second := join("--http", address), join()
	eventually(t, "two hosts run two shards each", func() bool { return len(first.leads()) == 2 && len(second.leads()) == 2 })
	first.logs(t, "the hosts may not lead all shards: start more, or raise --most")
	beyond := regexp.MustCompile(`pgelector_shards_beyond\{group="[^"]*"\} 2\n`)
	eventually(t, "a metric says how many", func() bool { return beyond.MatchString(get(t, address, "/metrics").body) })
	third := join()
	share(t, first, second, third)
	first.logs(t, "the hosts may lead all shards")
	third.signal(t, syscall.SIGKILL)
	third.silent(t, patience)
	time.Sleep(2 * time.Second) // in which a host without a bound takes what is free
	if one, two := first.leads(), second.leads(); len(one) != 2 || len(two) != 2 {
		t.Errorf("the hosts that are left run %v and %v", one, two)
	}
}

func TestAGuardThatIsKilledEndsOnlyItsOwnShard(t *testing.T) {
	t.Parallel()
	h := hosts(t)()
	share(t, h)
	killed := h.children["3"]
	check(t, syscall.Kill(h.guards["3"], syscall.SIGKILL))
	eventually(t, "the shard runs again", func() bool { h.leads(); return h.begun["3"] == 2 })
	if alive(killed) {
		t.Error("a process of the killed guard's command lives")
	}
	for name, n := range h.begun {
		if name != "3" && n != 1 {
			t.Errorf("shard %s was started %d times", name, n)
		}
		if err := syscall.Kill(h.children[name], 0); err != nil {
			t.Errorf("a process of shard %s: %v", name, err)
		}
	}
	// One that is frozen does not keep the others from their end.
	check(t, sandbox.Stop(h.guards["2"]))
	h.signal(t, syscall.SIGTERM)
	h.ends(t, exit.SignalBase+int(syscall.SIGKILL))
	h.silent(t, patience)
}

func TestTheCommandOfAShardThatEndsIsRunAgain(t *testing.T) {
	t.Parallel()
	r := launch(t, append(at(shared.Get(t).DSN()), "DIR="+t.TempDir()), sharing(unique("group"), 1, "--restart-delay", "10ms",
		"--", "sh", "-c", "echo ran; mkdir $DIR/before && exit 3; exec sleep 1000")...)
	r.says(t, "ran")
	r.says(t, "ran")
	r.signal(t, syscall.SIGINT)
	r.ends(t, exit.SignalBase+int(syscall.SIGINT))
	if errs := r.errs.String(); !strings.Contains(errs, "ended by interrupt") || strings.Contains(errs, "could not connect") {
		t.Errorf("it says %s", errs)
	}
}

// It is for the commands, and a host may have none for the moment.
func TestAHangUpEndsNoHostOfAGroup(t *testing.T) {
	t.Parallel()
	group := unique("group")
	r := launch(t, at(shared.Get(t).DSN()), sharing(group, 1, "--restart-delay", "1m", "--", "false")...)
	r.logs(t, "command ended")
	if log := r.errs.String(); !regexp.MustCompile(`elected: election="seat \d+ of `+group+`"`).MatchString(log) || strings.Contains(log, group+"#") {
		t.Errorf("the log does not say what the member's seat is:\n%s", log)
	}
	r.signal(t, syscall.SIGHUP)
	r.signal(t, syscall.SIGQUIT)
	time.Sleep(100 * time.Millisecond) // until it has heard of them
	r.stops(t)
}

func TestAHostWithShardsIsReadyWhileTheServerAnswers(t *testing.T) {
	t.Parallel()
	way, err := shared.Get(t).Proxy(t.Context())
	check(t, err)
	address := freeAddress(t)
	r := launch(t, at(way.DSN()), sharing(unique("group"), 1, append(brief, "--http", address, "--", "sleep", "1000")...)...)
	r.logs(t, "command started")
	if got := ready(t, address, http.StatusOK); !strings.Contains(got.body, `"commands":{"0":`) {
		t.Errorf("/leader says %s", got.body)
	}
	way.BlackHole()
	ready(t, address, http.StatusServiceUnavailable)
	if got := get(t, address, "/healthz").status; got != http.StatusOK {
		t.Errorf("/healthz without a server: %d", got)
	}
	way.Heal()
	ready(t, address, http.StatusOK)
	r.stops(t)
}

func TestStatusShowsAGroupInOneRow(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	invoke(t, at(dsn), "status", "--group", "billing", "--shards", "3").want(t, exit.Negative, "nobody leads")
	invoke(t, at(dsn), "status", "--shards", "3").want(t, exit.Usage, "--group")
	pool, err := sql.Open("pgx", dsn)
	check(t, err)
	defer pool.Close()
	ctx, stop := context.WithCancel(t.Context())
	led, done := make(chan string, 3), make(chan error, 1)
	go func() {
		done <- shard.Run(ctx, pool, "billing", shard.Numbers(3), func(ctx context.Context, name string, _ *elector.Term) error {
			led <- name
			<-ctx.Done()
			return nil
		}, shard.WithSession(elector.WithCandidateID("web-1")))
	}()
	for range 3 {
		select {
		case <-led:
		case <-time.After(patience):
			t.Fatal("not all shards are led")
		}
	}
	invoke(t, at(dsn), "status", "--group", "billing", "--shards", "3").want(t, exit.OK, "billing", "web-1 3")
	invoke(t, at(dsn), "status").want(t, exit.OK, "4 unnamed, of one session", "leads", "web-1", "the member's seat")
	invoke(t, at(dsn), "status", "--group", "billing", "--json", "1", "other").want(t, exit.Negative, `"candidate": "web-1"`, `"other"`)
	stop()
	<-done
}

// A standby of a program that is not Go is seen in the roster.
func TestRunPublishesItsCandidateInTheRoster(t *testing.T) {
	t.Parallel()
	c, database := shared.Get(t), unique("roster")
	check(t, c.CreateDatabase(t.Context(), database))
	dsn := c.DSN(pgcluster.ForDatabase(database))
	pool, err := sql.Open("pgx", dsn)
	check(t, err)
	defer pool.Close()
	seen, err := roster.New(pool, roster.WithSchema("who"))
	check(t, err)
	of := func(id string) (found roster.Candidate) {
		candidates, _ := seen.Candidates(context.WithoutCancel(t.Context()), keyOf(name(t))) // fails until there are tables
		for _, candidate := range candidates {
			if candidate.CandidateID == id {
				found = candidate
			}
		}
		return found
	}
	lead(t, dsn, name(t), "leads", "--roster", "who")
	follows := launch(t, at(dsn), "lead", name(t), "--candidate", "follows", "--roster", "who", "--http", freeAddress(t))
	eventually(t, "both are published", func() bool { return of("leads").Leading && of("follows").State == roster.Live })
	third := launch(t, at(dsn), "lead", name(t), "--candidate", "polls", "--takeover", "poll", "--roster", "who", "--http", freeAddress(t))
	invoke(t, at(dsn), "status", "--roster", "who").want(t, exit.OK, name(t)+"  ", "leads", "TOKEN")
	invoke(t, at(dsn), "status", "--roster", "who", "--json", name(t)).want(t, exit.OK, `"token": "`)
	invoke(t, at(dsn), "status", "--roster", "pg_x").want(t, exit.Usage, "--roster", "pg_")
	invoke(t, at(dsn), "status", "--roster", "nosuch").want(t, exit.Failure, "pgelector lead --roster")
	page := launch(t, at(dsn), "dashboard", "--listen", "127.0.0.1:0", "--roster", "who", name(t))
	address := strings.TrimSuffix("127.0.0.1:"+page.says(t, "http://127.0.0.1:"), "/")
	eventually(t, "one that has neither the lock nor a seat is shown", func() bool { return strings.Contains(get(t, address, "/").body, "polls") })
	for _, r := range []*running{third, page} {
		r.stops(t)
	}
	names := invoke(t, at(dsn), "__complete", "status", "")
	if strings.Contains(names.out, name(t)) {
		t.Errorf("the completion reads another schema: %s", names.out)
	}
	follows.stops(t)
	if got := of("follows").State; got != roster.Left {
		t.Errorf("the one that has ended is %q", got)
	}
	invoke(t, at(dsn), "run", "--election", "x", "--roster", "pg_x", "--", "true").want(t, exit.Usage, "--roster", "pg_")
	check(t, c.Exec(t.Context(), "CREATE ROLE "+database+" LOGIN"))
	may := at(c.DSN(pgcluster.ForDatabase(database), pgcluster.ForRole(database)))
	// Another migrates, until this one's first write has failed.
	sum := sha256.Sum256([]byte("pgelector roster: unmade"))
	high, low := int32(binary.BigEndian.Uint32(sum[:4])), int32(binary.BigEndian.Uint32(sum[4:8]))
	migrates := connection(t, dsn)
	_, err = migrates.Exec(t.Context(), "SELECT pg_advisory_lock($1, $2)", high, low)
	check(t, err)
	refused := launch(t, may, "lead", name(t)+"2", "--roster", "unmade", "--http", freeAddress(t))
	eventually(t, "the first write fails", func() bool {
		log, err := c.ServerLog()
		check(t, err)
		return strings.Contains(log, `relation "unmade.`)
	})
	_, err = migrates.Exec(t.Context(), "SELECT pg_advisory_unlock($1, $2)", high, low)
	check(t, err)
	refused.logs(t, "the tables of the roster were not made")
	if said, _, _ := strings.Cut(refused.errs.String(), "were not made"); strings.Contains(said, "was not written") {
		t.Errorf("it complains before it makes the tables:\n%s", said)
	}
	refused.stops(t)
}

func TestNamesOfElectionsAreCompletedFromTheRoster(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	invoke(t, at(dsn), "__complete", "status", "").want(t, exit.OK, ":4") // no roster, no names, no files
	lead(t, dsn, "billing", "web-1", "--roster", "pgelector")
	for _, asked := range [][]string{{"status"}, {"watch"}, {"resign"}, {"evict"}, {"lead"}, {"dashboard"}, {"run"}, {"run", "--election"}} {
		eventually(t, strings.Join(asked, " "), func() bool {
			return strings.HasPrefix(invoke(t, at(dsn), append(append([]string{"__complete"}, asked...), "")...).out, "billing\n:4")
		})
	}
	for _, asked := range [][]string{{"run", "billing", ""}, {"run", "billing", "--", ""}, {"run", "--election", "billing", "--", ""}, {"run", "--group", "g", "--", ""}} {
		if command := invoke(t, at(dsn), append([]string{"__complete"}, asked...)...); !strings.HasPrefix(command.out, ":0") {
			t.Errorf("%q: the shell does not complete the command, but pgelector: %s", asked, command.out)
		}
	}
	invoke(t, at(dsn), "__complete", "resign", "billing", "--to", "").want(t, exit.OK, "web-1\n:4")
	if ids := invoke(t, at(dsn), "__complete", "resign", "other", "--to", ""); !strings.HasPrefix(ids.out, ":4") {
		t.Errorf("completes candidates of another election: %s", ids.out)
	}
}
