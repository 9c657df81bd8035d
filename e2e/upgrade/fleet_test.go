//go:build unix

package upgrade_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The command of each candidate holds a lock of the file system until its last process is gone.
const command = `exec 9>"$DIR/lock"; flock -n 9 || echo overlap >>"$DIR/terms"
echo $PGELECTOR_TOKEN $PGELECTOR_CANDIDATE >>"$DIR/terms"
trap 'exit 0' TERM; sleep 1000 & wait`

// A fleet is the candidates of one election, which run the command.
type fleet struct {
	*testing.T
	election, dir string
	members       map[string]*process // by candidate id
	made          int
}

func newFleet(t *testing.T) *fleet {
	return &fleet{T: t, election: name(t), dir: t.TempDir(), members: map[string]*process{}}
}

// join starts a candidate of that version, and returns its id.
func (f *fleet) join(v version) string {
	f.Helper()
	f.made++
	id := fmt.Sprint(v, "-", f.made)
	cmd := exec.Command(v.program("pgelector"), "run", "--election", f.election, "--candidate", id, "--lease", "2s", "--heartbeat", "100ms",
		"--retry", "50ms", "--restart", "--backoff", "10ms", "--", "sh", "-c", command)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+shared.Get(f).DSN(), "DIR="+f.dir)
	f.members[id] = start(f.T, cmd)
	return id
}

// leave ends a candidate in order.
func (f *fleet) leave(id string) {
	f.Helper()
	f.members[id].signal(f.T, syscall.SIGTERM)
	select {
	case <-f.members[id].exited:
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
		f := newFleet(t)
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
		f := newFleet(t)
		first := f.join(from)
		f.elects(1)
		second := f.join(to)
		f.members[first].signal(t, syscall.SIGSTOP) // its guard ends the command
		if leader := f.elects(2); leader != second {
			t.Errorf("%s leads", leader)
		}
		f.members[first].signal(t, syscall.SIGCONT)
		f.leave(second)
		f.elects(3)
	})
}

// Leaders hear requests from version 1 on.
func TestALeaderOfTheOlderVersionHearsNoRequest(t *testing.T) {
	t.Parallel()
	build(t)
	f := newFleet(t)
	f.join(old)
	f.elects(1)
	f.join(today)
	if out, err := f.ask(today, "resign", f.election, "--wait", "1s"); err == nil {
		t.Errorf("the older version has answered:\n%s", out)
	}
	f.elects(1)
}
