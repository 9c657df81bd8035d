package electortest_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// commits counts the unanswered commits of a server.
type commits struct {
	mu      sync.Mutex
	waiting map[int32]bool
}

func (c *commits) see(e electortest.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.What == "CommitSynchronously" && !e.Done:
		c.waiting[e.PID] = true
	case e.Done && (e.What == "CommitSynchronously" || e.What == "ended"):
		delete(c.waiting, e.PID)
	}
}

// during watches for a time, and returns the maximum number of waiting commits.
func (c *commits) during(d time.Duration) (most int) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(heartbeat / 10) {
		c.mu.Lock()
		most = max(most, len(c.waiting))
		c.mu.Unlock()
	}
	return most
}

// The backend of a waiting commit outlives its client, as after a kill.
func TestCommitsOfAnElectionDoNotPileUp(t *testing.T) {
	replicated(t, func(b *bench) {
		seen := &commits{waiting: map[int32]bool{}}
		b.Trace(seen.see)
		first := b.run("first", synchronously)
		b.leads(first)
		b.CutStandbys()
		time.Sleep(2 * heartbeat)
		first.process.Kill()
		next := b.run("next", synchronously)
		if most := seen.during(10 * lease); most != 1 {
			t.Errorf("up to %d commits wait at once", most)
		}
		failures := next.rec.Failures()
		if last := failures[len(failures)-1]; !strings.Contains(last.Err.Error(), "an earlier one of this election still waits") {
			t.Errorf("the next candidate reports %v", last.Err)
		}
		if n := next.pool.Stats().InUse; n > 2 {
			t.Errorf("%d connections are in use", n)
		}
		b.ReconnectStandbys()
		b.leads(next)
	})
}

// The configuration is reloaded around the first commit: the attempt makes another commit on
// the same connection.
func TestAnAttemptMakesAnotherCommitOnTheSameConnection(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		one.process.SetLatency(func() time.Duration { return time.Millisecond })
		var mu sync.Mutex
		connections, commits := 0, 0
		b.Trace(func(e electortest.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case e.What == "ApplySettings" && e.Done && e.Args[0] == false:
				connections++
			case e.What == "CommitSynchronously" && e.Done:
				if commits++; commits == 1 {
					go b.SetSynchronousStandbys("FIRST 1 (s1)", "s1")
				}
			}
		})
		b.leads(one)
		time.Sleep(lease)
		mu.Lock()
		defer mu.Unlock()
		if n := len(one.rec.Failures()); connections != 1 || commits < 3 || n != 0 {
			t.Errorf("%d commits on %d connections, failures: %v", commits, connections, one.rec.Failures())
		}
	})
}

// A tool cancels slow commits. The server answers as if they had been acknowledged.
func TestACommitWhoseWaitIsCancelledProvesNothing(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.leads(one)
		time.Sleep(heartbeat)
		b.Trace(func(e electortest.Event) {
			if e.What == "CommitSynchronously" && !e.Done {
				time.AfterFunc(time.Millisecond, func() { b.Cancel(e.PID) })
			}
		})
		b.CutStandbys()
		cut := time.Now()
		d := b.demoted(one)
		b.within("the end of the term", validity-heartbeat, d.At.Sub(cut), validity)
		if !strings.Contains(d.Err.Error(), "cancelled the wait") {
			t.Errorf("demoted by %v", d.Err)
		}
	})
}

// The connection for commits breaks, and the next one reaches another server.
func TestACommitOnAnotherServerProvesNothing(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.leads(one)
		time.Sleep(heartbeat / 2)
		other := b.NewStandby(0)
		defer other.Close()
		b.wraps(other.Promote())
		other.SetSynchronousStandbys("FIRST 1 (s2)", "s2")
		one.process.ConnectTo(other)
		b.Trace(func(e electortest.Event) {
			if e.What == "CommitSynchronously" && !e.Done {
				go b.Terminate(e.PID)
			}
		})
		d := b.demoted(one)
		b.wraps(d.Err, elector.ErrSessionLost, elector.ErrOldPrimary)
		if !strings.Contains(d.Err.Error(), "timeline 2 has replaced timeline 1") {
			t.Errorf("demoted by %v", d.Err)
		}
	})
}

// Each reload may have changed the setting and back.
func TestACommitAroundWhichTheConfigurationIsReloadedProvesNothing(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.leads(one)
		one.process.SetLatency(func() time.Duration { return time.Millisecond })
		time.Sleep(3 * heartbeat)
		b.Trace(func(e electortest.Event) {
			if e.What == "CommitSynchronously" && e.Done {
				go b.SetSynchronousStandbys("FIRST 1 (s1)", "s1")
			}
		})
		reloaded := time.Now()
		d := b.demoted(one)
		b.within("the end of the term", validity-heartbeat, d.At.Sub(reloaded), validity)
		if d.Reason != hooks.LeaseExpired || !strings.Contains(d.Err.Error(), "reloaded") {
			t.Errorf("demoted because %s: %v", d.Reason, d.Err)
		}
	})
}

// The connection for commits ends repeatedly, while the session's own lives.
func TestAConnectionForCommitsThatEndsIsReplaced(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.leads(one)
		var mu sync.Mutex
		ended, beats, slowest := 0, map[time.Time]bool{}, time.Duration(0)
		last := time.Now()
		broken := false
		b.Trace(func(e electortest.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.What == "CommitSynchronously" && !e.Done && broken {
				slowest, broken = max(slowest, time.Since(last)), false
			}
			switch {
			case e.What == "CommitSynchronously" && !e.Done && time.Since(last) > 3*heartbeat/2:
				last, broken = time.Now(), true
				ended++
				go b.Terminate(e.PID)
			case e.What == "Ping" && e.Done:
				beats[time.Now()] = true
			}
		})
		time.Sleep(10 * lease)
		b.Trace(nil)
		mu.Lock()
		defer mu.Unlock()
		if n := len(one.rec.Demoted()); n > 0 || ended < 10 {
			t.Errorf("demoted %d times, %d connections ended: %v", n, ended, one.rec.Demoted())
		}
		if n := len(beats); n <= int(10*lease/heartbeat) { // otherwise the session ended as well
			t.Errorf("%d heartbeats in %v", n, 10*lease)
		}
		b.within("the next commit", 0, slowest, heartbeat*5/4) // the end of an idle connection shows when it is next used
		time.Sleep(2 * heartbeat)
		b.CutStandbys()
		if d := b.demoted(one); strings.Contains(d.Err.Error(), "terminat") {
			t.Errorf("a past failure is reported as the reason: %v", d.Err)
		}
	})
}

// An unacknowledged commit is abandoned when the candidate stops.
func TestAResignationDoesNotWaitForACommit(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.leads(one)
		b.CutStandbys()
		time.Sleep(heartbeat + heartbeat/2)
		began := time.Now()
		one.stop()
		<-one.done
		one.done <- nil // for the end of the test
		b.within("Run returns", 0, time.Since(began), 2*time.Second)
		time.Sleep(time.Second)
		if n := one.pool.Stats().InUse; len(b.Locks()) > 0 || n > 0 {
			t.Errorf("locks %v are left, %d connections are in use", b.Locks(), n)
		}
	})
}

// The figures of docs/servers.md.
func TestSynchronousStandbysCostALeaderTwoStatementsPerHeartbeatAndAFollowerNone(t *testing.T) {
	replicated(t, func(b *bench) {
		leader := b.run("leader", synchronously)
		b.leads(leader)
		b.run("follower", synchronously, elector.WithStandby(elector.Poll))
		time.Sleep(2*lease + heartbeat/2)
		asked := map[string]int{}
		var mu sync.Mutex
		b.Trace(func(e electortest.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Done && e.What != "connected" && e.What != "ended" {
				asked[e.What]++
			}
		})
		const beats = 100
		time.Sleep(beats * heartbeat)
		mu.Lock()
		defer mu.Unlock()
		if tries := asked["TryLock"]; tries == 0 {
			t.Error("the follower does not follow")
		}
		delete(asked, "TryLock")
		for _, name := range []string{"Ping", "CommitSynchronously", "SynchronousStandbys"} {
			if n := asked[name]; n < beats-1 || n > beats+1 {
				t.Errorf("%s %d times in %d heartbeat intervals", name, n, beats)
			}
			delete(asked, name)
		}
		if asked["HoldsLock"] != beats/10 {
			t.Errorf("the lock is checked %d times", asked["HoldsLock"])
		}
		delete(asked, "HoldsLock")
		if len(asked) > 0 {
			t.Errorf("other statements: %v", asked)
		}
	})
}
