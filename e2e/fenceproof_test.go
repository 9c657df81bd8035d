//go:build unix

package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/register"
	"github.com/pgelector/pgelector/e2e/sandbox"
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
	writers []*member
	log     history.Log
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
	c := &writerGroup{s: s}
	election := s.election(t)
	t.Cleanup(func() { c.end(t) })
	for i := range 2 {
		// The store limits how long a frozen writer can block others.
		dsn := s.Cluster.DSN(pgcluster.WithParam("idle_in_transaction_session_timeout", "500ms"))
		settings := writerSettings{Driver: d.name(i), DSN: s.DSN(), Store: dsn, Election: election, ID: unique(fmt.Sprint("writer-", i)), Way: how,
			Register: table, Lease: 2 * time.Second, Retry: 50 * time.Millisecond, Pause: 10 * time.Millisecond}
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
	w := &member{Cmd: exec.Command(os.Args[0]), id: settings.ID, gone: make(chan struct{})}
	w.Env = append(os.Environ(), writerVariable+"="+string(text))
	w.Stderr = &w.stderr
	w.stdin, err = w.StdinPipe()
	check(t, err)
	out, err := w.StdoutPipe()
	check(t, err)
	check(t, w.Start())
	c.writers = append(c.writers, w)
	go func() {
		defer close(w.gone)
		_ = c.log.Collect(out)
		_ = w.Wait()
	}()
}

// end ends the writers and returns their history.
func (c *writerGroup) end(t *testing.T) []history.Event {
	t.Helper()
	for _, w := range c.writers {
		_ = w.Process.Signal(syscall.SIGCONT)
		_ = w.stdin.Close()
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
	return c.log.Since(0)
}

// seen waits for an event after the first past ones that matches, and returns it.
func (c *writerGroup) seen(past int, within time.Duration, match func(history.Event) bool) (history.Event, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for {
		fresh, err := c.log.Await(ctx, past)
		if i := slices.IndexFunc(fresh, match); i >= 0 {
			return fresh[i], true
		}
		if past += len(fresh); err != nil {
			return history.Event{}, false
		}
	}
}

func (c *writerGroup) awaits(t *testing.T, what string, past int, match func(history.Event) bool) history.Event {
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
	for _, d := range c.log.Since(max(0, c.past()-40)) {
		t.Logf("%+v", d)
	}
	for _, session := range list[string](t, c.s.admin, `SELECT concat_ws(' ', pid, application_name, state, wait_event, now() - state_change, pg_blocking_pids(pid), query)
		FROM pg_stat_activity WHERE backend_type = 'client backend' ORDER BY application_name`) {
		t.Log(session)
	}
}

func (c *writerGroup) past() int { return len(c.log.Since(0)) }

func (c *writerGroup) writer(id string) *member {
	return c.writers[slices.IndexFunc(c.writers, func(w *member) bool { return w.id == id })]
}

// terminate ends the session of a candidate.
func (c *writerGroup) terminate(t *testing.T, id string) {
	t.Helper()
	_, err := c.s.admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", id)
	check(t, err)
}

// outcomes are those of writes.
var outcomes = map[history.Kind]register.Outcome{history.Wrote: register.Done, history.Refused: register.Refused, history.Unsure: register.Unknown}

func returned(e history.Event) int64 { return int64(e.At.Add(e.Took)) }

// linearizable asks porcupine whether the history fits one register.
func linearizable(events []history.Event) porcupine.CheckResult {
	var ops []register.Op
	for _, e := range events {
		if outcome, writes := outcomes[e.Kind]; writes || e.Kind == history.Read {
			ops = append(ops, register.Op{Client: e.Process, Read: !writes, Old: e.Old, New: e.New, Outcome: outcome, Call: int64(e.At), Return: returned(e)})
		}
	}
	return register.Linearizable(ops, patience)
}

// overtaken counts the writes that returned after a write of a newer leader. (A fenced
// write may do so, too: it was in time, and its process was frozen before the answer.
// porcupine decides that.)
func overtaken(events []history.Event) (n int) {
	newest := int64(0)
	for _, e := range slices.SortedStableFunc(slices.Values(events), func(a, b history.Event) int { return cmp.Compare(returned(a), returned(b)) }) {
		if e.Kind != history.Wrote {
			continue
		}
		if e.Token < newest {
			n++
		}
		newest = max(newest, e.Token)
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
		old := c.awaits(t, "a leader has checked that it leads", c.past(), func(e history.Event) bool { return e.Kind == history.Checked })
		time.Sleep(rand.N(20 * time.Millisecond))
		past := c.past()
		check(t, sandbox.Stop(c.writer(old.Process).Process.Pid))
		if rand.N(2) == 0 {
			c.terminate(t, old.Process)
		}
		within := patience
		if rand.N(4) == 0 {
			within = rand.N(4 * time.Second)
		}
		// Without a fence, a late write of an earlier leader may succeed, too.
		_, succeeded := c.seen(past, within, func(e history.Event) bool { return e.Kind == history.Wrote && e.Token > old.Token })
		if !succeeded && within == patience {
			c.print(t)
			t.Errorf("no later leader has written within %v, after a freeze of %+v", patience, old)
		}
		check(t, c.writer(old.Process).Process.Signal(syscall.SIGCONT))
		if succeeded {
			c.awaits(t, "the frozen one has noticed", 0, func(e history.Event) bool { return e.Kind == history.Ended && e.Token == old.Token })
		}
	}
	events := c.end(t)
	counts := map[history.Kind]int{}
	for _, e := range events {
		counts[e.Kind]++
	}
	result := tally{Rounds: roundsOfOne, Histories: 1, Overtaken: overtaken(events),
		Written: counts[history.Wrote], Refused: counts[history.Refused], Unknown: counts[history.Unsure]}
	switch got := linearizable(events); {
	case got == porcupine.Ok:
	case got == porcupine.Illegal && how == unfenced:
		result.Broken++
	default:
		c.print(t)
		t.Errorf("linearizable: %s", got)
	}
	return result
}
