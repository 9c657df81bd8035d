//go:build unix

package examples_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/sandbox"
	"github.com/pgelector/pgelector/elector"
)

var (
	ticks = flag.Int("ticks", 200, "that are done while leaders change; one change for 16")
	load  = flag.Duration("load", 300*time.Millisecond, "that a cache takes to load")
)

// fleet is processes of internal/candidate, by their ids.
type fleet struct {
	*testing.T
	dsn  string
	pool *sql.DB
	all  map[string]process
	born int
}

func newFleet(t *testing.T, pool *sql.DB, dsn string) *fleet {
	t.Helper()
	check(t, built())
	return &fleet{T: t, dsn: dsn, pool: pool, all: map[string]process{}}
}

var builtIn string // a directory that TestMain removes

// built builds internal/candidate once.
var built = sync.OnceValue(func() (err error) {
	if builtIn, err = os.MkdirTemp("", "candidate"); err != nil {
		return err
	}
	overlay, err := ahead(builtIn)
	if err != nil {
		return err
	}
	for name, flags := range map[string][]string{"candidate": nil, "ahead": {"-overlay", overlay}} {
		args := append([]string{"build", "-o", filepath.Join(builtIn, name)}, flags...)
		if out, err := exec.Command("go", append(args, "./internal/candidate")...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
})

// clockAhead is by how much the clocks of candidates differ.
const clockAhead = 10 * time.Second

// ahead makes an overlay with which package ticks reads a clock that is ahead.
func ahead(dir string) (overlay string, err error) {
	sources, err := filepath.Glob("../ticks/*.go")
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		from, err := filepath.Abs(source)
		if err != nil {
			return "", err
		}
		shifted := strings.ReplaceAll(string(text), "time.Now()", fmt.Sprintf("time.Now().Add(%d)", clockAhead))
		replaced[from] = filepath.Join(dir, filepath.Base(source))
		if err := os.WriteFile(replaced[from], []byte(shifted), 0o644); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o644)
}

// cleaned runs tests, and then removes what built has made.
type cleaned struct{ goleak.TestingM }

func (c cleaned) Run() int {
	defer func() { _ = os.RemoveAll(builtIn) }()
	return c.TestingM.Run()
}

func (f *fleet) start(work, driver, id string) process {
	f.Helper()
	return f.launch("candidate", work, driver, id)
}

func (f *fleet) launch(program, work, driver, id string) process {
	f.Helper()
	f.all[id] = launch(f.T, filepath.Join(builtIn, program), driver, f.dsn, work, driver, id, load.String())
	return f.all[id]
}

// leader waits for a leader other than that one.
func (f *fleet) leader(other string) (id string) {
	f.Helper()
	e, err := elector.New(f.pool, "example")
	check(f.T, err)
	eventually(f.T, "another leads", func() bool {
		leader, err := e.Leader(soon(f.T))
		if err != nil && !errors.Is(err, elector.ErrNoLeader) {
			f.Fatal(err)
		}
		id = leader.CandidateID
		return id != "" && id != other
	})
	return id
}

// past skips lines until another comes, which must have a prefix.
func (p process) past(t *testing.T, skip, prefix string) {
	t.Helper()
	line := skip
	for line == skip {
		line = receive(t, prefix, p.lines)
	}
	if line != prefix {
		t.Fatalf("got the line %q, want %q", line, prefix)
	}
}

// kill kills a process, as kill -9 does.
func (f *fleet) kill(id string) {
	f.Helper()
	_ = f.all[id].Process.Kill() // fails if it has ended
	_ = f.all[id].Wait()
	delete(f.all, id)
}

func bothDrivers(t *testing.T, test func(t *testing.T, driver, dsn string, pool *sql.DB)) {
	t.Helper()
	for _, driver := range []string{"postgres", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			dsn := database(t)
			test(t, driver, dsn, open(t, driver, dsn))
		})
	}
}

// soonWarm is how soon a warm deputy does its first useful work, as docs/recipes.md says. It is less than the load takes.
const soonWarm = 150 * time.Millisecond

// takesOver kills the leader, and returns how soon the deputy works.
func (f *fleet) takesOver(leader string, deputy process) time.Duration {
	f.Helper()
	killed := time.Now()
	check(f.T, f.all[leader].Process.Kill())
	deputy.expect(f.T, "working")
	took := time.Since(killed)
	f.kill(leader) // and wait for its end
	return took
}

func TestOnlyTheDeputyLoadsTheCacheAndWorksWithItAtOnce(t *testing.T) {
	bothDrivers(t, func(t *testing.T, driver, dsn string, pool *sql.DB) {
		f := newFleet(t, pool, dsn)
		first := f.start("warm", driver, "first")
		for _, line := range []string{"loading", "loaded", "working"} {
			first.expect(t, line)
		}
		second := f.start("warm", driver, "second")
		second.past(t, "following", "loading") // as the deputy
		second.expect(t, "loaded")
		third := f.start("warm", driver, "third")
		third.expect(t, "following")          // and does not ask again soon
		warm := f.takesOver("first", second)  // and loads nothing before
		third.past(t, "following", "loading") // it is the deputy now, and was not before
		third.expect(t, "loaded")
		warm = min(warm, f.takesOver("second", third))
		leader := "third"
		for began := time.Now(); warm > soonWarm && time.Since(began) < timeout; { // the machine was busy
			next := fmt.Sprint("next-", f.born)
			f.born++
			p := f.start("warm", driver, next)
			p.past(t, "following", "loading")
			p.expect(t, "loaded")
			warm, leader = min(warm, f.takesOver(leader, p)), next
		}
		if warm > soonWarm {
			t.Errorf("the first useful work came %v after the kill at best, with a cache that takes %v to load", warm, *load)
		}
		f.kill(leader)

		cold := f.start("warm", driver, "cold") // what a follower without a deputy's cache needs
		began := time.Now()
		for _, line := range []string{"loading", "loaded", "working"} {
			cold.expect(t, line)
		}
		t.Logf("first useful work after kill -9, with a cache of %v: warm after %d ms, cold after %.1f s", *load, warm.Milliseconds(), time.Since(began).Seconds())
	})
}

func TestEachTickIsDoneOnceWhileLeadersChange(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	pool := open(t, "pgx", dsn)
	execute(t, pool, "CREATE TABLE done (at timestamptz, by text, done timestamptz DEFAULT clock_timestamp())")
	f := newFleet(t, pool, dsn)
	start := func() { // with each driver, and with each clock
		f.born++
		f.launch([]string{"candidate", "ahead"}[f.born/2%2], "ticks", []string{"pgx", "postgres"}[f.born%2], fmt.Sprint("candidate-", f.born))
	}
	for range 4 {
		start()
	}
	var n int
	done := func() int {
		check(t, pool.QueryRow("SELECT count(*) FROM done").Scan(&n))
		return n
	}
	kills, stops, freezes := 0, 0, 0
	for change := 1; change <= *ticks/16; change++ {
		eventually(t, "ticks are done", func() bool { return done() >= 16*change })
		leader := f.leader("")
		switch {
		case change%12 == 5: // it thaws when another one leads
			check(t, sandbox.Stop(f.all[leader].Process.Pid))
			f.leader(leader)
			check(t, f.all[leader].Process.Signal(syscall.SIGCONT))
			freezes++
			continue
		case change%2 == 0:
			f.kill(leader)
			kills++
		default:
			p := f.all[leader]
			check(t, p.Process.Signal(syscall.SIGTERM))
			check(t, p.Wait())
			delete(f.all, leader)
			stops++
		}
		start()
		f.leader(leader)
	}
	eventually(t, "all ticks are done", func() bool { return done() >= *ticks })
	var all, distinct, span int
	check(t, pool.QueryRow(`SELECT count(*), count(DISTINCT at), (extract(epoch FROM max(at) - min(at)) * 1000 / 40)::int + 1 FROM done`).Scan(&all, &distinct, &span))
	if all != distinct || all != span {
		t.Errorf("%d ticks of %d were done %d times", distinct, span, all)
	}
	var early int
	check(t, pool.QueryRow("SELECT count(*) FROM done WHERE at > done").Scan(&early))
	if early > 0 {
		t.Errorf("%d ticks were done before their time by a process's clock", early)
	}
	t.Logf("%d ticks were done once each, over %d kills and %d hand-overs, and %d freezes", all, kills, stops, freezes)
}

func TestTheOutboxIsPublishedOnceAndInTheOrderOfEachRowWhileLeadersAreKilled(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	pool := open(t, "pgx", dsn)
	prepare(t, pool)
	execute(t, pool, "CREATE TABLE orders AS SELECT id, 0 AS version FROM generate_series(1, 4) id")
	f := newFleet(t, pool, dsn)
	for i, driver := range []string{"pgx", "postgres", "pgx"} {
		f.start("outbox", driver, fmt.Sprint("publisher-", i))
	}
	const writers, each, kills = 4, 100, 6
	var wrote sync.WaitGroup
	for range writers {
		wrote.Go(func() {
			for i := range each {
				_, err := pool.Exec(`WITH o AS (UPDATE orders SET version = version + 1 WHERE id = $1 RETURNING id, version)
					INSERT INTO outbox (body) SELECT concat(id, ':', version) FROM o`, i%4+1)
				if err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	for i := range kills {
		leader := f.leader("")
		f.kill(leader)
		f.start("outbox", []string{"pgx", "postgres"}[i%2], fmt.Sprint("next-", i))
		f.leader(leader)
	}
	wrote.Wait()
	await(t, pool, writers*each)
	var all, distinct, disordered int
	check(t, pool.QueryRow(`WITH p AS (SELECT place, split_part(body, ':', 1) AS row, split_part(body, ':', 2)::int AS version FROM published)
		SELECT count(*), count(DISTINCT (row, version)), count(*) FILTER (WHERE version <> rank) FROM (SELECT *, row_number() OVER (PARTITION BY row ORDER BY place) AS rank FROM p) p`).
		Scan(&all, &distinct, &disordered))
	if all != writers*each || distinct != all || disordered > 0 {
		t.Errorf("%d messages of %d were published %d times, %d out of order", distinct, writers*each, all, disordered)
	}
}

func TestTheLeadersRouteIsReachedThroughAnyProcessWhileLeadersAreKilled(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	pool := open(t, "pgx", dsn)
	f := newFleet(t, pool, dsn)
	drivers := []string{"pgx", "postgres"}
	address := func() string {
		port, err := sandbox.FreePort()
		check(t, err)
		return net.JoinHostPort(sandbox.Loopback, strconv.Itoa(port))
	}
	for i := range 3 {
		f.start("http", drivers[i%2], address())
	}
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(url string) (status int, said string) {
		r, err := client.Get(url)
		if err != nil {
			return 0, err.Error()
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(text)
	}
	before := ""
	for i := range 2 {
		leader := f.leader(before)
		for id := range f.all {
			eventually(t, "the leader answers through "+id, func() bool {
				status, said := get("http://" + id + "/work")
				return status == http.StatusOK && strings.HasPrefix(said, leader+" ")
			})
			if status, said := get("http://" + id + "/readyz"); status != http.StatusOK {
				t.Errorf("%s is not ready: %d %s", id, status, said)
			}
		}
		f.kill(leader)
		before = leader
		f.start("http", drivers[i%2], address())
	}
}
