//go:build unix

package e2e_test

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/deputy"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/preflight"
	"github.com/pgelector/pgelector/internal/promotion"
	"github.com/pgelector/pgelector/internal/transaction"
)

// beatsVariable sets the number of heartbeats of each leader and deputy: make soak sets it
// to 100,000.
const beatsVariable = "PGELECTOR_HEARTBEATS"

const defaultBeats = 2000

// beating is a leader or a deputy in transaction scope, with heartbeats that are closer than
// an Elector permits.
type beating struct {
	id      string
	leads   bool
	counter *counter
	ended   atomic.Bool
}

// beats counts the statements that restart the server's timer.
func (b *beating) beats() int {
	sent := b.counter.now()
	return sent["PingTransaction"] + sent["TryInTransaction"]
}

// beat elects one, or makes it the deputy, and lets its heart beat until the test ends.
func (s *server) beat(t *testing.T, d drivers, dsn, name string, leads bool) *beating {
	t.Helper()
	pool, counter := d.openCounted(t, 0, dsn)
	b := &beating{id: unique("beating"), counter: counter}
	key, scope := elector.KeyFromName(name), preflight.NewScope(holder.Auto)
	c := election.SessionConfig{CandidateID: b.id, Report: func(doing string, err error) {
		if doing != "call" { // a driver that is slow to close a connection on a busy machine
			t.Error(doing, err)
		}
	}}
	c.Lease.Length, c.Lease.Heartbeat, c.Lease.Drain = time.Minute, 5*time.Millisecond, time.Second
	if !leads {
		c.Lease.Heartbeat = 100 * time.Millisecond // it tries more often
	}
	a := deputy.New(deputy.Config{CandidateID: b.id, Key: key, Sit: true, SitInside: true, Interval: 5 * time.Millisecond, Inside: scope.InTransaction, Wary: scope.MetStandby, Auto: true})
	c.Parts = []election.Part{&preflight.Part{Scope: scope, Pins: 1}, transaction.Part{}, promotion.New(5*time.Millisecond, scope.InTransaction), a}
	c.Statements = a.Statements
	heard := &beatingObserver{TB: t, beating: b, first: make(chan election.Attempt, 1)}
	k := election.New(election.NewSource(pool, c), election.Config{Key: key, Retry: func() time.Duration { return retry }, Acquirer: a, Observer: heard})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := k.Run(ctx, func(ctx context.Context, _ *election.Term) error {
			<-ctx.Done()
			return nil
		})
		if ctx.Err() == nil {
			t.Error(err)
		}
		b.ended.Store(true)
	}()
	t.Cleanup(func() {
		stop()
		closed(t, "it ends", ended)
	})
	got := <-heard.first
	check(t, got.Err)
	if b.leads = got.Lock != nil; b.leads != leads || !scope.InTransaction() {
		t.Errorf("it leads: %v, in transaction scope: %v", b.leads, scope.InTransaction())
	}
	return b
}

// A beatingObserver tells of the first attempt, and of what should not be.
type beatingObserver struct {
	testing.TB
	*beating
	first chan election.Attempt
}

func (o *beatingObserver) Attempted(a election.Attempt) {
	select {
	case o.first <- a:
	default:
	}
}

func (o *beatingObserver) Ended(_ *election.Term, cause error) {
	o.ended.Store(true)
	if reason := election.ReasonOf(cause); reason != election.Shutdown {
		o.Error(cause)
	}
}

func (o *beatingObserver) Elected(*election.Term)        {}
func (o *beatingObserver) Demoted(*election.Term, error) {}
func (o *beatingObserver) Released(*election.Term)       {}

func (o *beatingObserver) Failed(doing string, err error) { o.Error(doing, err) }

var usedMemory = regexp.MustCompile(`Grand total: .* (\d+) used`)

// memory is what a backend uses, by its own account.
func (s *server) memory(t *testing.T, pid int) (used int) {
	t.Helper()
	before, err := s.ServerLog()
	check(t, err)
	check(t, s.admin.QueryRow("SELECT pg_log_backend_memory_contexts($1)", pid).Scan(new(bool)))
	eventually(t, "the backend logs its memory", func() bool {
		log, err := s.ServerLog()
		check(t, err)
		found := usedMemory.FindStringSubmatch(log[len(before):])
		if found == nil {
			return false
		}
		used, err = strconv.Atoi(found[1])
		check(t, err)
		return true
	})
	return used
}

// The transactions of leaders and deputies last for days. The database must not feel them.
func TestThousandsOfHeartbeatsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	n := defaultBeats
	if text := os.Getenv(beatsVariable); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		check(t, err)
	}
	s := on(t, own(t, pgcluster.WithSetting("autovacuum", "off"), pgcluster.WithSetting("checkpoint_timeout", "1d")))
	b := bounced(t, s.Cluster, pgcluster.Transaction, pgcluster.WithPoolSize(20))
	var all []*beating
	holders := map[*beating]int{}
	for name, d := range map[string]drivers{"pq": pq, "pgx exec": pgx} {
		of := s.election(t)
		leader := s.beat(t, d, b.DSN(waysToAsk[name]...), of, true)
		holders[leader] = s.holders(t, elector.KeyFromName(of))[0]
		all = append(all, leader, s.beat(t, d, b.DSN(waysToAsk[name]...), of, false))
	}
	reach := func(beats int) {
		t.Helper()
		for _, one := range all {
			for began := time.Now(); one.beats() < beats && !one.ended.Load(); time.Sleep(10 * time.Millisecond) {
				if time.Since(began) > 10*time.Minute {
					t.Fatalf("%s: only %d heartbeats", one.id, one.beats())
				}
			}
		}
	}

	reach(n / 5) // caches fill first
	s.canBeMaintained(t)
	used := map[*beating]int{}
	for leader, pid := range holders {
		used[leader] = s.memory(t, pid)
	}
	written := func() int { return one[int](t, s.admin, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint") }
	wal, before := written(), all[0].beats()
	for _, one := range all {
		s.holdsNothingBack(t, one.id, 100)
	}
	reach(n)
	if grown, beats := written()-wal, all[0].beats()-before; grown > beats { // a record has 24 bytes at least
		t.Errorf("%d bytes of WAL in %d heartbeats", grown, beats)
	}
	for _, one := range all {
		s.holdsNothingBack(t, one.id, 100)
		if !one.leads {
			continue
		}
		now := s.memory(t, holders[one]) // it has the transaction still
		t.Logf("%s: %d heartbeats, memory of the backend %d, then %d bytes", one.id, one.beats(), used[one], now)
		if now > used[one]+64<<10 {
			t.Errorf("%s: its backend used %d bytes, and %d after %d heartbeats", one.id, used[one], now, one.beats())
		}
	}
	s.canBeMaintained(t)
}

// canBeMaintained checks that nothing waits for a transaction of a leader or deputy.
func (s *server) canBeMaintained(t *testing.T) {
	t.Helper()
	ask := func(statement string) {
		t.Helper()
		_, err := s.admin.ExecContext(soon(t), statement)
		check(t, err)
	}
	ask("CREATE TABLE t AS SELECT generate_series(1, 10000) AS n")
	ask("DELETE FROM t")
	eventually(t, "VACUUM removes everything", func() bool { // but what a statement of an instant holds back
		ask("VACUUM t")
		return one[int](t, s.admin, "SELECT (pg_relation_size('t') / 8192)::int") == 0
	})
	for range 20 { // if it saw the snapshot of an instant, it would wait for the end of that transaction
		ask("CREATE INDEX CONCURRENTLY i ON t (n)")
		ask("REINDEX INDEX CONCURRENTLY i")
		ask("DROP INDEX CONCURRENTLY i")
	}
	if one[int](t, s.admin, "SELECT current_setting('server_version_num')::int") >= 190_000 {
		ask("ALTER TABLE t ADD PRIMARY KEY (n)")
		ask("REPACK (CONCURRENTLY) t") // it waits for snapshots, too
	}
	ask("DROP TABLE t")
}
