//go:build unix

package e2e_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/register"
	"github.com/pgelector/pgelector/fence"
)

// roundsVariable sets how often a leader is frozen, for each way to write.
const roundsVariable = "PGELECTOR_FENCE_ROUNDS"

const (
	defaultRounds = 30
	roundsOfOne   = 10 // rounds per register
	atOnce        = 6  // registers at a time
)

// writerGroup is the writers of one register, each in its own process.
type writerGroup struct {
	s       *server
	way     way
	writers []*writerProcess

	mu      sync.Mutex
	history []action
	more    chan struct{} // closed by the next action
}

type writerProcess struct {
	*exec.Cmd
	id     string
	in     io.WriteCloser
	stderr bytes.Buffer
	gone   chan struct{}
}

// startWriters starts two writers.
func (s *server) startWriters(t *testing.T, d drivers, how way) *writerGroup {
	t.Helper()
	store := s.admin
	_, err := store.Exec("SELECT pg_advisory_xact_lock(4711); " + fence.CreateTable) // IF NOT EXISTS is not atomic
	check(t, err)
	table := strings.ReplaceAll(unique("register"), "-", "_") // with one row
	_, err = store.Exec("CREATE TABLE " + table + " (value text); INSERT INTO " + table + " VALUES ('')")
	check(t, err)
	c := &writerGroup{s: s, way: how, more: make(chan struct{})}
	election := s.election(t)
	t.Cleanup(func() { c.end(t) })
	for i := range 2 {
		// The store limits how long a frozen writer can block others.
		dsn := s.Cluster.DSN(pgcluster.WithParam("idle_in_transaction_session_timeout", "500ms"))
		settings := writerSettings{Driver: d.name(i), DSN: s.DSN(), Store: dsn, Election: election, ID: unique(fmt.Sprint("writer-", i)), Way: how,
			Register: table, Lease: time.Second, Retry: 50 * time.Millisecond, Pause: 10 * time.Millisecond}
		if how == inTx {
			settings.Store = s.DSN()
		}
		c.start(t, settings)
	}
	return c
}

func (c *writerGroup) start(t *testing.T, settings writerSettings) {
	t.Helper()
	text, err := json.Marshal(settings)
	check(t, err)
	w := &writerProcess{Cmd: exec.Command(os.Args[0]), id: settings.ID, gone: make(chan struct{})}
	w.Env = append(os.Environ(), writerVariable+"="+string(text))
	w.Stderr = &w.stderr
	w.in, err = w.StdinPipe()
	check(t, err)
	out, err := w.StdoutPipe()
	check(t, err)
	check(t, w.Start())
	c.writers = append(c.writers, w)
	go func() {
		defer close(w.gone)
		for lines := json.NewDecoder(out); ; {
			var d action
			if lines.Decode(&d) != nil {
				break
			}
			c.mu.Lock()
			c.history = append(c.history, d)
			close(c.more)
			c.more = make(chan struct{})
			c.mu.Unlock()
		}
		_ = w.Wait()
	}()
}

// end ends the writers and returns their history.
func (c *writerGroup) end(t *testing.T) []action {
	t.Helper()
	for _, w := range c.writers {
		_ = w.Process.Signal(syscall.SIGCONT)
		_ = w.in.Close()
	}
	for _, w := range c.writers {
		select {
		case <-w.gone:
		case <-time.After(patience):
			_ = w.Process.Kill()
			<-w.gone
			t.Errorf("%s has not ended within %v", w.id, patience)
		}
		if code := w.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s has ended with %d:\n%s", w.id, code, w.stderr.String())
		} else if t.Failed() {
			t.Logf("%s has said:\n%s", w.id, w.stderr.String())
		}
	}
	return c.history
}

// seen waits for an action after the first past ones that matches, and returns it.
func (c *writerGroup) seen(past int, within time.Duration, match func(action) bool) (action, bool) {
	timeout := time.After(within)
	for {
		c.mu.Lock()
		for _, d := range c.history[past:] {
			if match(d) {
				c.mu.Unlock()
				return d, true
			}
		}
		past = len(c.history)
		more := c.more
		c.mu.Unlock()
		select {
		case <-more:
		case <-timeout:
			return action{}, false
		}
	}
}

func (c *writerGroup) awaits(t *testing.T, what string, past int, match func(action) bool) action {
	t.Helper()
	d, seen := c.seen(past, patience, match)
	if !seen {
		c.print(t)
		t.Fatalf("not within %v: %s", patience, what)
	}
	return d
}

// print logs the end of the history, and what the server does.
func (c *writerGroup) print(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.history[max(0, len(c.history)-40):] {
		t.Logf("%+v", d)
	}
	for _, session := range list[string](t, c.s.admin, `SELECT concat_ws(' ', pid, application_name, state, wait_event, now() - state_change, pg_blocking_pids(pid), query)
		FROM pg_stat_activity WHERE backend_type = 'client backend' ORDER BY application_name`) {
		t.Log(session)
	}
}

func (c *writerGroup) past() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.history)
}

func (c *writerGroup) writer(id string) *writerProcess {
	return c.writers[slices.IndexFunc(c.writers, func(w *writerProcess) bool { return w.id == id })]
}

// terminate ends the session of a candidate.
func (c *writerGroup) terminate(t *testing.T, id string) {
	t.Helper()
	_, err := c.s.admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", id)
	check(t, err)
}

// linearizable asks porcupine whether the history fits one register.
func linearizable(history []action) porcupine.CheckResult {
	outcomes := map[string]register.Outcome{ok: register.Done, refused: register.Refused, unknown: register.Unknown}
	var ops []register.Op
	for _, d := range history {
		if d.Kind == hasRead || d.Kind == hasWritten {
			ops = append(ops, register.Op{Client: d.ID, Read: d.Kind == hasRead, Old: d.Old, New: d.New,
				Outcome: outcomes[d.Outcome], Call: d.Call, Return: d.Return})
		}
	}
	return register.Linearizable(ops, patience)
}

// overtaken counts the writes that returned after a write of a newer leader. (A fenced
// write may do so, too: it was in time, and its process was frozen before the answer.
// porcupine decides that.)
func overtaken(history []action) (n int) {
	history = slices.SortedStableFunc(slices.Values(history), func(a, b action) int { return cmp.Compare(a.Return, b.Return) })
	newest := int64(0)
	for _, d := range history {
		if d.Kind != hasWritten || d.Outcome != ok {
			continue
		}
		if d.Token < newest {
			n++
		}
		newest = max(newest, d.Token)
	}
	return n
}

// A leader is frozen at a random moment, as between its check and its write: the lease or the
// administrator ends the session, with or without an open transaction, and the thaw comes before
// or after the next leader's write.
func TestFencedWritesAreLinearizableWhateverIsFrozenWhen(t *testing.T) {
	t.Parallel()
	rounds := defaultRounds
	if text := os.Getenv(roundsVariable); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		check(t, err)
	}
	slots := make(chan struct{}, atOnce)
	for _, how := range []way{unfenced, inTx, byToken} {
		t.Run(strings.ReplaceAll(string(how), " ", "-"), func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var sum tally
			rounds := rounds
			if how == unfenced { // enough rounds to show that the check can fail
				rounds = min(rounds, defaultRounds)
			}
			t.Run("all", func(t *testing.T) {
				for i := range (rounds + roundsOfOne - 1) / roundsOfOne {
					d := []drivers{pq, pgx, mixed}[i%3]
					t.Run(fmt.Sprint(i), func(t *testing.T) {
						t.Parallel()
						slots <- struct{}{}
						defer func() { <-slots }()
						one := freezeAtRandom(t, d, how)
						mu.Lock()
						defer mu.Unlock()
						sum.add(one)
					})
				}
			})
			t.Logf("%s: %+v", how, sum)
			if how == unfenced && !t.Failed() && (sum.Broken == 0 || sum.Overtaken == 0) {
				t.Errorf("no broken history without a fence: %+v", sum)
			}
		})
	}
}

// tally counts the results of some rounds.
type tally struct{ Rounds, Written, Refused, Unknown, Overtaken, Histories, Broken int }

func (a *tally) add(b tally) {
	a.Rounds, a.Written, a.Refused, a.Unknown = a.Rounds+b.Rounds, a.Written+b.Written, a.Refused+b.Refused, a.Unknown+b.Unknown
	a.Overtaken, a.Histories, a.Broken = a.Overtaken+b.Overtaken, a.Histories+b.Histories, a.Broken+b.Broken
}

func freezeAtRandom(t *testing.T, d drivers, how way) tally {
	c := onShared(t).startWriters(t, d, how)
	for range roundsOfOne {
		old := c.awaits(t, "a leader has checked that it leads", c.past(), func(d action) bool { return d.Kind == hasChecked })
		time.Sleep(rand.N(20 * time.Millisecond))
		past := c.past()
		check(t, c.writer(old.ID).Process.Signal(syscall.SIGSTOP))
		if rand.N(2) == 0 {
			c.terminate(t, old.ID)
		}
		within := patience
		if rand.N(4) == 0 {
			within = rand.N(2 * time.Second)
		}
		// Without a fence, a late write of an earlier leader may succeed, too.
		_, succeeded := c.seen(past, within, func(d action) bool { return d.Kind == hasWritten && d.Token > old.Token && d.Outcome == ok })
		if !succeeded && within == patience {
			c.print(t)
			t.Errorf("no later leader has written within %v, after a freeze of %+v", patience, old)
		}
		check(t, c.writer(old.ID).Process.Signal(syscall.SIGCONT))
		if succeeded {
			c.awaits(t, "the frozen one has noticed", 0, func(d action) bool { return d.Kind == hasLeft && d.Token == old.Token })
		}
	}
	history := c.end(t)
	result := tally{Rounds: roundsOfOne, Histories: 1, Overtaken: overtaken(history)}
	for _, d := range history {
		if d.Kind == hasWritten {
			switch d.Outcome {
			case ok:
				result.Written++
			case refused:
				result.Refused++
			case unknown:
				result.Unknown++
			}
		}
	}
	switch got := linearizable(history); {
	case got == porcupine.Ok:
	case got == porcupine.Illegal && how == unfenced:
		result.Broken++
	default:
		c.print(t)
		t.Errorf("linearizable: %s", got)
	}
	return result
}
