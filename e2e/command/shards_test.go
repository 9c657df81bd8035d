//go:build unix

package command_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
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

func hosts(t *testing.T) (join func() *host) {
	dir, group := t.TempDir(), unique("group")
	return func() *host {
		args := quick("", append([]string{"--lease", "30s", "--drain", "1s", "--group", group, "--shards", fmt.Sprint(shardsOfTest)}, sh(shardCommand)...)...)
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
	second.signal(t, syscall.SIGKILL)
	second.silent(t, patience) // its guards kill its commands
	third.overlap = false
	eventually(t, "the last one runs all", func() bool { return len(third.leads()) == shardsOfTest })
	third.signal(t, syscall.SIGTERM)
	third.ends(t, exit.OK)
	third.silent(t, patience)
}

func TestAGuardThatIsKilledEndsOnlyItsOwnShard(t *testing.T) {
	t.Parallel()
	h := hosts(t)()
	share(t, h)
	killed := h.children["3"]
	check(t, syscall.Kill(h.guards["3"], syscall.SIGKILL))
	eventually(t, "the shard runs again", func() bool { h.leads(); return h.begun["3"] == 2 })
	if syscall.Kill(killed, 0) == nil {
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
	check(t, syscall.Kill(h.guards["2"], syscall.SIGSTOP))
	h.signal(t, syscall.SIGTERM)
	h.ends(t, exit.SignalBase+int(syscall.SIGKILL))
	h.silent(t, patience)
}

func TestTheCommandOfAShardThatEndsIsRunAgain(t *testing.T) {
	t.Parallel()
	r := launch(t, append(at(shared.Get(t).DSN()), "DIR="+t.TempDir()), quick("", "--group", unique("group"), "--shards", "1", "--backoff", "10ms",
		"--", "sh", "-c", "echo ran; mkdir $DIR/before && exit 3; exec sleep 1000")...)
	r.says(t, "ran")
	r.says(t, "ran")
	r.signal(t, syscall.SIGINT)
	r.ends(t, exit.SignalBase+int(syscall.SIGINT))
}

func TestAHostWithShardsIsReadyWhileTheServerAnswers(t *testing.T) {
	t.Parallel()
	way, err := shared.Get(t).Proxy(t.Context())
	check(t, err)
	address := freeAddress(t)
	r := launch(t, at(way.DSN()), quick("", "--group", unique("group"), "--shards", "1", "--http", address, "--", "sleep", "1000")...)
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
	r.signal(t, syscall.SIGTERM)
	r.ends(t, exit.OK)
}
