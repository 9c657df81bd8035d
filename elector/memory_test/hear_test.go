package memory_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// A leader asks for its requests beside its session. While no connection is free, they wait, which is
// reported once.
func TestRequestsWaitWhileTheLeaderHasNoConnectionToAskForThem(t *testing.T) {
	for name, scope := range scopes {
		scene(t, name, func(b *bench) {
			leader := b.candidate("leader", scope)
			leader.pool.SetMaxOpenConns(2)
			term := b.campaign(leader.Elector)
			conn, err := leader.pool.Conn(always)
			b.check(err)
			ctx, stop := context.WithTimeout(always, 10*time.Minute)
			defer stop()
			other, answered := b.candidate("other"), make(chan error, 1)
			go func() {
				_, err := elector.RequestResign(ctx, other.pool, "orders")
				answered <- err
			}()
			time.Sleep(5 * time.Minute)
			b.failed(leader, hooks.OpRequest)
			b.wraps(context.Cause(term.Context()))
			b.check(conn.Close())
			time.Sleep(time.Minute)
			b.wraps(context.Cause(term.Context()), elector.ErrResigned)
			b.wraps(term.Resign(always))
			b.wraps(<-answered)
			b.failed(leader, hooks.OpRequest)
		})
	}
}

// A pool may lead to another server, where another backend has the same process id.
func TestARequestOnAnotherServerIsNotHeard(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.wired(b.answers("ServerStart", 1, "another"), "leader")
		term := b.campaign(leader.Elector)
		_, err := ask(b, resignOf(b.candidate("other")))
		b.wraps(err, elector.ErrUnanswered)
		b.wraps(term.Resign(always))
		b.failed(leader)
	})
}

// The key 0 stands for the wait for the end of a transaction, which ends the term in any case. The
// locks of a request cannot say so.
func TestNobodyCanPretendToWaitForTheEndOfATransaction(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader", inside, elector.WithRequests(false))
		term := b.campaign(leader.Elector)
		tx, err := b.candidate("other").pool.Begin()
		b.check(err)
		ring, err := db.New(tx).Ring(always, db.RingParams{Pid: b.pid(leader)})
		b.check(err)
		time.Sleep(3 * heartbeat)
		if err := context.Cause(term.Context()); err != nil || !ring.Rung {
			b.Errorf("rung %v: %v", ring.Rung, err)
		}
		b.check(tx.Rollback())
		b.wraps(term.Resign(always))
	})
}

// A candidate reports who keeps the lock from everybody, each minute, if it finds that twice in a row:
// others share a lock for an instant to see whether it is free.
func TestACandidateReportsWhoBlocksItsElection(t *testing.T) {
	for name, c := range map[string]struct {
		first  int // answers, of which the others are that nobody does
		report bool
	}{"for long": {1 << 30, true}, "for an instant": {1, false}} {
		scene(t, name, func(b *bench) {
			b.leads(b.run("leader"))
			b.Handle(func(s electortest.Statement) (electortest.Answer, error) {
				if strings.HasSuffix(s.SQL, "busy") {
					return electortest.Answer{Rows: [][]any{{"busy", false, int64(9), int64(0), ""}}}, nil
				}
				return electortest.Answer{Rows: [][]any{{int64(7), "psql", "mallory", "", int64(0), int64(0), int64(0), false, int64(0), "ShareLock", "", int64(0), int64(0)}}}, nil
			})
			var asked atomic.Int32
			other := b.wired(func(m message, send func() error) error {
				switch {
				case m.name == "TryLock":
					*m.text = "SHOW busy"
				case m.name == "Holder" && int(asked.Add(1)) <= c.first:
					*m.text = "SHOW blocker"
				}
				return send()
			}, "other", elector.WithTakeover(elector.Poll))
			b.runFor(210*time.Second, other)
			synctest.Wait()
			failures := other.rec.Failures()
			if c.report != (len(failures) == 3) || !c.report && len(failures) > 0 {
				b.Fatalf("failures: %+v", failures)
			}
			for _, f := range failures {
				if f.Op != hooks.OpLeader || !errors.Is(f.Err, elector.ErrNoLeader) || !strings.Contains(f.Err.Error(), `"mallory"`) {
					b.Errorf("%s: %v", f.Op, f.Err)
				}
			}
		})
	}
}
