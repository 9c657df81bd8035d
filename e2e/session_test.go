//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// group is the candidates of one process for many elections on one session.
type group struct {
	*elector.Session
	all   []*elector.Elector
	rec   *hookstest.Recorder // of all
	stop  context.CancelFunc
	ended sync.WaitGroup
	errs  chan error // what each Run returned
}

// share makes a session and checks at the end of the test that it leaves nothing behind.
func (s *server) share(t *testing.T, pool *sql.DB, opts ...elector.SessionOption) *group {
	t.Helper()
	inSessionScope(t, "a shared session needs it")
	g := &group{rec: hookstest.NewRecorder()}
	session, err := elector.NewSession(pool, append([]elector.SessionOption{
		elector.WithCandidateID(unique("session")),
		elector.WithLease(lease), elector.WithHeartbeatInterval(heartbeat),
		elector.WithRetryInterval(retry), withoutLeader(g.rec)}, opts...)...)
	check(t, err)
	g.Session = session
	t.Cleanup(func() {
		g.close(t)
		for _, violation := range g.rec.Violations() {
			t.Error("violated:", violation)
		}
		s.leavesNothing(t, &candidate{Elector: g.any(t), pool: pool})
	})
	return g
}

// any returns an elector of the session, for its candidate's id.
func (g *group) any(t *testing.T) *elector.Elector {
	t.Helper()
	if len(g.all) > 0 {
		return g.all[0]
	}
	e, err := g.Elector("none")
	check(t, err)
	return e
}

// join adds elections to the session.
func (g *group) join(t *testing.T, elections []string, opts ...elector.ElectionOption) *group {
	t.Helper()
	for _, election := range elections {
		e, err := g.Elector(election, opts...)
		check(t, err)
		g.all = append(g.all, e)
	}
	return g
}

// run starts Run of every election; Close ends them.
func (g *group) run(t *testing.T, lead func(context.Context, *elector.Term) error) *group {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	errs := make(chan error, len(g.all))
	g.stop, g.errs = stop, errs
	for _, e := range g.all {
		g.ended.Go(func() { errs <- e.Run(ctx, lead) })
	}
	return g
}

// close closes the session, and shows what goes on if that takes too long.
func (g *group) close(t *testing.T) {
	t.Helper()
	if err := g.Close(soon(t)); err != nil {
		var stacks strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		t.Errorf("%v\n%s", err, &stacks)
	}
	if g.stop == nil {
		return
	}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		g.ended.Wait()
	}()
	closed(t, "every Run returns", returned)
	g.stop()
}

// leading counts the elections that this session leads.
func (g *group) leading() (n int) {
	for _, e := range g.all {
		if e.IsLeader() {
			n++
		}
	}
	return n
}

// elections returns the names of n elections, whose locks must be free at the end of the test.
func (s *server) elections(t *testing.T, n int) (all []string) {
	t.Helper()
	name := unique(t.Name())
	keys := ""
	for i := range n {
		election := electionOf(name, i)
		all = append(all, election)
		keys += fmt.Sprintf(",%d", elector.KeyFromName(election))
	}
	t.Cleanup(func() {
		if s.up() {
			eventually(t, "the locks are free", func() bool {
				return one[int](t, s.admin, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
					AND ((classid::bigint << 32) | objid::bigint) = ANY(ARRAY[`+keys[1:]+`]::bigint[])`) == 0
			})
		}
	})
	return all
}

// ledOnce waits until each election is led, and checks that exactly one group leads it.
func ledOnce(t *testing.T, groups ...*group) {
	t.Helper()
	n := len(groups[0].all)
	eventually(t, "each election is led", func() bool {
		sum := 0
		for _, g := range groups {
			sum += g.leading()
		}
		return sum == n
	})
	for i := range n {
		leaders := 0
		for _, g := range groups {
			if g.all[i].IsLeader() {
				leaders++
			}
		}
		if leaders != 1 {
			t.Errorf("election %d is led by %d", i, leaders)
		}
	}
}

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// The tests count costs with the default intervals. On a busy machine neither the lease runs out, nor is a hook
// reported that waits for a thousand others.
var byDefault = []elector.SessionOption{elector.WithLease(5 * time.Minute), elector.WithDrain(time.Minute),
	elector.WithHeartbeatInterval(2 * time.Second), elector.WithRetryInterval(time.Second)}

func TestAThousandElectionsSendFewStatements(t *testing.T) {
	over(t, map[string]drivers{"pq leads": mixed, "pgx leads": {"pgx", "postgres"}}, false, func(t *testing.T, d drivers) {
		s := onShared(t)
		elections := s.elections(t, 1000)
		var groups []*group
		var counters []*counter
		for i := range 3 {
			pool, counter := d.openCounted(t, i, s.DSN())
			groups, counters = append(groups, s.share(t, pool, byDefault...).join(t, elections)), append(counters, counter)
		}
		groups[0].run(t, nil)
		eventually(t, "the first session leads all", func() bool { return groups[0].leading() == 1000 })
		for _, g := range groups[1:] {
			g.run(t, nil)
		}
		for _, g := range groups[1:] {
			_, err := hookstest.WaitN(soon(t), g.rec, 1000, func(e hooks.Campaign) bool { return e.Outcome == hooks.Busy })
			check(t, err)
		}
		before := []map[string]int{counters[0].now(), counters[1].now(), counters[2].now()}
		began := time.Now()
		time.Sleep(4 * time.Second) // the measured time
		seconds := time.Since(began).Seconds()
		for i, counter := range counters {
			most := 13 * seconds // a batch a second, a heartbeat, and the looks whether the leader's session has ended
			if i == 0 {
				most = 2 * seconds
			}
			if d.name(i) != "pgx" {
				most += 4 * seconds // it looks whether its session lives
			}
			if got := counter.since(before[i]); float64(total(got)) > most+1 {
				t.Errorf("session %d: %v in %.1f s", i, got, seconds)
			}
		}
		if n := len(s.holders(t, groups[0].all[0].Key())); n != 1 {
			t.Errorf("%d backends hold a lock", n)
		}
		closing := counters[0].now()
		groups[0].close(t)
		if got := counters[0].since(closing); total(got) > 500 { // what waits to be released goes in one statement
			t.Errorf("Close sent %v", got)
		}
		if n := groups[0].leading(); n > 0 {
			t.Errorf("leads %d after Close", n)
		}
		ledOnce(t, groups[1:]...)
		for i, g := range groups {
			if n := len(g.rec.Failures()); n > 0 {
				t.Errorf("session %d: %d failures, the first: %v", i, n, g.rec.Failures()[0].Err)
			}
		}
	})
}
