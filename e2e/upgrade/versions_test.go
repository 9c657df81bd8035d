//go:build unix

// Package upgrade_test runs processes of two versions together on one server: today's, and the
// older one that docs/protocol.md compares it with.
package upgrade_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/lockkey"
)

// older is the commit of the older version. It knows no deputies, seats, requests and life locks.
const older = "2e4b912f3ab52013ccdcec5e8eeb65d8c6bc7e56"

var (
	shared   = pgcluster.NewShared()
	programs string // the directory of the built programs
)

func TestMain(m *testing.M) {
	if signal.Ignored(syscall.SIGHUP) { // under nohup the tested programs would ignore it, too
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	var err error
	if programs, err = os.MkdirTemp("", "pgelector-upgrade-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(shared.Around(m), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(programs)
		os.Exit(code)
	}))
}

// A version is one build of the command and of testdata/candidate.
type version string

const (
	old   version = "old"
	today version = "today"
)

func (v version) program(name string) string { return filepath.Join(programs, string(v), name) }

// directions are the ways of an upgrade and back.
func directions(t *testing.T, test func(t *testing.T, from, to version)) {
	t.Parallel()
	build(t)
	for _, way := range [][2]version{{old, today}, {today, old}} {
		t.Run(fmt.Sprintf("from %s to %s", way[0], way[1]), func(t *testing.T) {
			t.Parallel()
			test(t, way[0], way[1])
		})
	}
}

// build skips the test if the clone is too shallow to have the older version.
func build(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("git", "-C", repository, "cat-file", "-e", older+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("needs the history of the repository, of which this copy lacks %.7s: %s", older, out)
	}
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
}

const repository = "../.."

var buildOnce = sync.OnceValue(func() error {
	copied := filepath.Join(programs, "source")
	copying := fmt.Sprintf("mkdir %s && git -C %s archive %s | tar -x -C %[1]s", copied, repository, older)
	if out, err := exec.Command("sh", "-c", copying).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", copying, err, out)
	}
	if err := buildIn(copied, old, "TransferTo", "ResignTo"); err != nil {
		return err
	}
	return buildIn(repository, today)
})

// buildIn builds the programs of a version from the source in dir. The candidate's source, with
// those words replaced, is laid over it.
func buildIn(dir string, v version, replace ...string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	source, err := os.ReadFile("testdata/candidate/main.go")
	if err != nil {
		return err
	}
	source = []byte(strings.NewReplacer(replace...).Replace(string(source)))
	main, overlay := filepath.Join(programs, string(v)+".go"), filepath.Join(programs, string(v)+".json")
	if err := os.WriteFile(main, source, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, filepath.Join(dir, "cmd/candidate/main.go"), main), 0o644); err != nil {
		return err
	}
	// Without the race detector, which would have the older version's dependencies built once more.
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", filepath.Join(programs, string(v))+"/", "./cmd/pgelector", "./cmd/candidate")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", v, err, out)
	}
	return nil
}

const patience = must.Patience

var check, eventually = must.Check, must.Eventually

// name returns the name of an election that nobody else stands in, also when tests are repeated.
func name(t *testing.T) string { return fmt.Sprint(t.Name(), time.Now().UnixNano()) }

// The command of each candidate holds a lock of the file system until its last process is gone.
const command = `exec 9>"$DIR/lock"; flock -n 9 || echo overlap >>"$DIR/terms"
echo $PGELECTOR_TOKEN $PGELECTOR_CANDIDATE >>"$DIR/terms"
trap 'exit 0' TERM; sleep 1000 & wait`

// A fleet is the candidates of one election, which run the command.
type fleet struct {
	*testing.T
	election, dir, lease string
	members              map[string]*must.Process // by candidate id
	made                 int
}

// unbroken is a lease that a slow answer of a busy machine does not exceed.
const unbroken = "30s"

func newFleet(t *testing.T, lease string) *fleet {
	return &fleet{T: t, election: name(t), dir: t.TempDir(), lease: lease, members: map[string]*must.Process{}}
}

// join starts a candidate of that version, and returns its id.
func (f *fleet) join(v version) string {
	f.Helper()
	f.made++
	id := fmt.Sprint(v, "-", f.made)
	again := []string{"--restart-delay", "10ms"}
	if v == old {
		again = []string{"--restart", "--backoff", "10ms"}
	}
	args := append([]string{"run", "--election", f.election, "--candidate", id, "--lease", f.lease, "--heartbeat", "100ms", "--retry", "50ms"}, again...)
	cmd := exec.Command(v.program("pgelector"), append(args, "--", "sh", "-c", command)...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+shared.Get(f).DSN(), "DIR="+f.dir)
	f.members[id] = must.Start(f.T, cmd)
	return id
}

// leave ends a candidate in order.
func (f *fleet) leave(id string) {
	f.Helper()
	f.members[id].Signal(f.T, syscall.SIGTERM)
	select {
	case <-f.members[id].Ended:
	case <-time.After(patience):
		f.Fatalf("%s does not end", id)
	}
	delete(f.members, id)
}

// terms lists who has led. It checks that no two commands ran at the same time, and that tokens rise.
func (f *fleet) terms() (leaders []string) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, "terms"))
	if err != nil {
		return nil
	}
	last := int64(0)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "overlap") {
			f.Fatalf("two commands ran at the same time:\n%s", text)
		}
		number, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		token, err := strconv.ParseInt(number, 10, 64)
		if err != nil || token <= last {
			f.Fatalf("%q after token %d: %v", line, last, err)
		}
		last = token
		leaders = append(leaders, id)
	}
	return leaders
}

// elects waits until n terms have begun, and returns the leader of the last.
func (f *fleet) elects(n int) string {
	f.Helper()
	eventually(f.T, fmt.Sprintf("term %d", n), func() bool { return len(f.terms()) >= n })
	leaders := f.terms()
	if len(leaders) != n {
		f.Fatalf("there were %d terms, want %d: %q", len(leaders), n, leaders)
	}
	return leaders[n-1]
}

func (f *fleet) others(leader string) (ids []string) {
	for id := range f.members {
		if id != leader {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestAFleetIsUpgradedProcessByProcess(t *testing.T) {
	directions(t, func(t *testing.T, from, to version) {
		f := newFleet(t, unbroken)
		for range 3 {
			f.join(from)
		}
		leader := f.elects(1)
		for _, id := range f.others(leader) { // this costs no term
			f.leave(id)
			f.join(to)
		}
		f.seenByBoth(leader)
		f.leave(leader)
		next := f.elects(2)
		if !strings.HasPrefix(next, string(to)) {
			t.Errorf("%s leads", next)
		}
		f.join(to)
		f.seenByBoth(next)
		f.leave(next)
		f.elects(3)
	})
}

// seenByBoth checks that the commands of both versions name the leader.
func (f *fleet) seenByBoth(leader string) {
	f.Helper()
	for _, v := range []version{old, today} {
		eventually(f.T, fmt.Sprintf("%s: status shows that %s leads", v, leader), func() bool {
			out, err := f.ask(v, "status", f.election)
			return err == nil && strings.Contains(out, leader)
		})
	}
}

func (f *fleet) ask(v version, args ...string) (string, error) {
	cmd := exec.Command(v.program("pgelector"), args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+shared.Get(f).DSN())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestALeaderThatIsFrozenIsReplacedByAnotherVersion(t *testing.T) {
	directions(t, func(t *testing.T, from, to version) {
		f := newFleet(t, "10s") // the server ends the frozen leader's session after as long
		first := f.join(from)
		f.elects(1)
		second := f.join(to)
		f.members[first].Signal(t, syscall.SIGSTOP) // its guard ends the command
		if leader := f.elects(2); leader != second {
			t.Errorf("%s leads", leader)
		}
		f.members[first].Signal(t, syscall.SIGCONT)
		f.leave(second)
		f.elects(3)
	})
}

// Leaders hear requests from version 1 on.
func TestALeaderOfTheOlderVersionHearsNoRequest(t *testing.T) {
	t.Parallel()
	build(t)
	f := newFleet(t, unbroken)
	f.join(old)
	f.elects(1)
	f.join(today)
	if out, err := f.ask(today, "resign", f.election, "--wait", "1s"); err == nil {
		t.Errorf("the older version has answered:\n%s", out)
	}
	f.elects(1)
}

// A candidate is testdata/candidate, which obeys.
type candidate struct {
	*testing.T
	id      string
	process *must.Process
	read    int // lines
}

func stand(t *testing.T, v version, election, id, lease, heartbeat string) *candidate {
	t.Helper()
	cmd := exec.Command(v.program("candidate"), shared.Get(t).DSN(), election, id, lease, heartbeat)
	return &candidate{T: t, id: id, process: must.Start(t, cmd)}
}

// says waits for a line with that first word, and returns the rest.
func (c *candidate) says(word string) (rest string) {
	c.Helper()
	eventually(c.T, fmt.Sprintf("%s says %q", c.id, word), func() (found bool) {
		for lines := c.process.Lines(); c.read < len(lines) && !found; c.read++ {
			var first string
			first, rest, _ = strings.Cut(lines[c.read], " ")
			found = first == word
		}
		return found
	})
	return rest
}

func (c *candidate) elected() (token int64) {
	c.Helper()
	token, err := strconv.ParseInt(c.says("elected"), 10, 64)
	check(c.T, err)
	return token
}

func TestAFencedTransactionHoldsUpALeaderOfAnotherVersion(t *testing.T) {
	directions(t, func(t *testing.T, from, to version) {
		conn, err := shared.Get(t).Conn(t.Context())
		check(t, err)
		defer conn.Close(t.Context())
		election, table := name(t), fmt.Sprint("written_", time.Now().UnixNano())
		key := elector.KeyFromName(election)
		_, err = conn.Exec(t.Context(), "CREATE TABLE "+table+" (token bigint)")
		check(t, err)
		// Heartbeats are so rare that an old leader does not learn of its loss. Today's hears of it at once,
		// unless it is frozen.
		first := stand(t, from, election, "first", "10m", "2m")
		token := first.elected()
		second := stand(t, to, election, "second", "10m", "2m")
		first.process.Order(t, "write", table)
		first.says("inside")
		if from == today {
			first.process.Signal(t, syscall.SIGSTOP)
		}
		var ended bool
		check(t, conn.QueryRow(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
			AND mode = 'ExclusiveLock' AND objsubid = 1 AND ((classid::bigint << 32) | objid::bigint) = $1`, key).Scan(&ended))
		high, low := lockkey.Halves(key)
		eventually(t, "the next leader waits at the barrier", func() (waits bool) {
			check(t, conn.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory'
				AND NOT granted AND objsubid = 2 AND classid = $1 AND objid = $2 AND application_name = 'second'`,
				uint32(high), uint32(low)).Scan(&waits))
			return waits
		})
		first.process.Signal(t, syscall.SIGCONT)
		first.process.Order(t, "go on")
		said := first.says("wrote")
		if from == old && said != "<nil>" {
			t.Fatalf("a transaction that began in its term: %s", said)
		}
		next := second.elected()
		if next <= token {
			t.Errorf("token %d after %d", next, token)
		}
		want := []int64{next}
		if said == "<nil>" { // today's may also have heard before it committed
			want = []int64{token, next}
		}
		if from == old {
			first.process.Order(t, "write", table)
			if said := first.says("wrote"); said == "<nil>" || !strings.Contains(said, "rolled back") {
				t.Errorf("a transaction after the term: %s", said)
			}
		}
		second.process.Order(t, "write", table)
		second.process.Order(t, "go on")
		if said := second.says("wrote"); said != "<nil>" {
			t.Error(said)
		}
		rows, err := conn.Query(t.Context(), "SELECT token FROM "+table+" ORDER BY token")
		check(t, err)
		written, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		check(t, err)
		if !slices.Equal(written, want) {
			t.Errorf("the tokens of committed transactions are %d, want %d", written, want)
		}
	})
}

// Their offers differ, so the successor does not come, and says so. The older leader resigns all the same.
func TestATransferToACandidateOfAnotherVersionFails(t *testing.T) {
	directions(t, func(t *testing.T, from, to version) {
		election := name(t)
		first := stand(t, from, election, "first", "5s", "200ms")
		first.elected()
		second := stand(t, to, election, "second", "5s", "200ms")
		first.process.Order(t, "transfer", second.id)
		if said := first.says("transferred"); said == "<nil>" {
			t.Errorf("the transfer: %s", said)
		}
	})
}
