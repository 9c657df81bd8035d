//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/ha/cluster"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
	"github.com/pgelector/pgelector/hooks"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// second returns a time, in seconds since the start.
func second(s float64) history.Time { return history.Time(s * float64(time.Second)) }

func lasts(from, to float64) time.Duration { return second(to).Sub(second(from)) }

// Tokens of the first and of the second timeline.
const (
	first = 1<<48 + 100
	later = 2<<48 + 50
)

// process returns the history of a process that leads once.
func process(name string, token int64, from, to float64) []history.Event {
	events := []history.Event{
		{Kind: history.Hello, At: second(from - 1)},
		{Kind: history.Attempt, At: second(from)},
		{Kind: history.Elected, At: second(from), Token: token},
		{Kind: history.Began, At: second(from), Token: token},
		{Kind: history.Sample, At: second(from), Leading: true, Token: token},
		{Kind: history.Sample, At: second(to), Leading: true, Token: token},
		{Kind: history.Ended, At: second(to), Token: token},
		{Kind: history.Demoted, At: second(to), Token: token},
		{Kind: history.Bye, At: second(to + 100)},
	}
	for i := range events {
		events[i].Process, events[i].Seq = name, i+1
	}
	return events
}

// write returns an event: a process replaces the value of a timeline's register.
func write(kind history.Kind, name, register, old, value string, at float64) history.Event {
	return history.Event{Process: name, Kind: kind, Register: register, Old: old, New: value, At: second(at), Took: 1}
}

// failover returns a history that breaks no guarantee. The primary n1 is lost at 10. n2 takes
// writes from 14. The route of a reaches n2 from 14.9, and b leads from 15.
func failover() []history.Event {
	return slices.Concat(process("a", first, 1, 11), process("b", later, 15, 30),
		[]history.Event{
			{Kind: history.Primary, Text: "n1", Token: 1, At: second(0), Took: lasts(0, 10)},
			{Kind: history.Writable, Text: "n1", Token: 1, At: second(0), Took: lasts(0, 10)},
			{Kind: history.Primary, Text: "n2", Token: 2, At: second(13), Took: lasts(13, 40)},
			{Kind: history.Writable, Text: "n2", Token: 2, At: second(14), Took: lasts(14, 40)},
			{Kind: history.Reached, Text: string(plain), At: second(14.9), Took: lasts(14.9, 40)},
			{Kind: history.Struck, Text: "lose, async", At: second(10)},
			{Kind: history.Healed, Text: "lose, async", At: second(16)},
			{Kind: history.Calm, At: second(17)},
			write(history.Wrote, "a", "1", "", "a-1", 5),
			write(history.Refused, "a", "1", "a-1", "a-2", 10.5),
			write(history.Wrote, "b", "2", "", "b-1", 16),
			{Kind: history.Kept, New: "a-1"}, {Kind: history.Kept, New: "b-1"},
			{Kind: history.Kept, Register: "1"}, {Kind: history.Kept, Register: "2"},
		})
}

// broken returns the claims about the first election that a history breaks.
func broken(events []history.Event) (claims []string) {
	for _, p := range prove(events) {
		if !p.Holds() && !strings.Contains(p.Claim, "(the second election)") {
			claims = append(claims, p.Claim)
		}
	}
	return claims
}

func TestProveAcceptsAGoodHistory(t *testing.T) {
	if claims := broken(failover()); len(claims) > 0 {
		t.Errorf("rejected: %q", claims)
	}
}

func TestProveRejectsABrokenGuarantee(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func([]history.Event) []history.Event
		claim string
	}{
		"two lead on one timeline": {
			func(h []history.Event) []history.Event { return append(h, process("c", later+1, 20, 30)...) }, "no two led at once"},
		"the leader of the old primary leads on when that is gone": {
			func(h []history.Event) []history.Event { return append(h, process("c", first+1, 12, 20)...) }, "no two led at once"},
		"a token falls": {
			func(h []history.Event) []history.Event { return append(h, process("c", later-1, 31, 32)...) }, "tokens rose"},
		"a process ends unexpectedly": {
			func(h []history.Event) []history.Event {
				return append(h, history.Event{Process: "b", Kind: history.Quit, At: second(12)})
			}, "no Run ended"},
		"a refused write is in the database": {
			func(h []history.Event) []history.Event {
				return append(h, history.Event{Kind: history.Kept, New: "a-2"})
			}, "no refused write"},
		"a write replaces what a later leader has written": {
			func(h []history.Event) []history.Event {
				return append(h, write(history.Wrote, "a", "2", "a-1", "a-3", 16.5), history.Event{Kind: history.Kept, New: "a-3"})
			}, "linearizable"},
		"an acknowledged write is lost, although replication was synchronous": {
			func(h []history.Event) []history.Event {
				return append(rename(h, "lose, async", "lose, sync"), write(history.Wrote, "a", "1", "a-1", "a-4", 6))
			}, "no acknowledged one was lost"},
		"each of two primaries has a leader, although both had WithSynchronousStandby": {
			func(h []history.Event) []history.Event {
				h = append(rename(h, "lose, async", "lose, guarded"), history.Event{Kind: history.Primary, Text: "n1", Token: 1, At: second(11), Took: lasts(11, 22)})
				return append(h, process("c", first+1, 12, 16)...)
			}, "no two led at once"},
		"the database was not read at the end": {
			func(h []history.Event) []history.Event {
				return slices.DeleteFunc(h, func(e history.Event) bool { return e.Kind == history.Kept })
			}, "no acknowledged one was lost"},
		"nobody leads again": {
			func(h []history.Event) []history.Event {
				return slices.DeleteFunc(h, func(e history.Event) bool { return e.Process == "b" })
			}, "somebody led again"},
		"a candidate makes attempts too quickly": {
			func(h []history.Event) []history.Event {
				for i := range mostAttempts + 1 {
					h = append(h, history.Event{Process: "c", Kind: history.Attempt, At: second(12 + float64(i)/6)})
				}
				return h
			}, "attempts a second"},
		"nobody leads for long after the route is back": {
			func(h []history.Event) []history.Event {
				return append(h, history.Event{Kind: history.Reached, Text: string(plain), At: second(11.5), Took: lasts(11.5, 40)})
			}, "soon after its route"},
		"a process records no end": {
			func(h []history.Event) []history.Event {
				return slices.DeleteFunc(h, func(e history.Event) bool { return e.Process == "a" && e.Kind == history.Bye })
			}, "nothing is missing"},
	} {
		claims := broken(test.spoil(failover()))
		if !slices.ContainsFunc(claims, func(c string) bool { return strings.Contains(c, test.claim) }) {
			t.Errorf("%s: %q was not among what is broken: %q", name, test.claim, claims)
		}
	}
}

func rename(events []history.Event, from, to string) []history.Event {
	for i := range events {
		if events[i].Text == from {
			events[i].Text = to
		}
	}
	return events
}

// The library does not exclude these costs; the run measures them.
func TestProveAcceptsTheKnownCostsOfAFailover(t *testing.T) {
	for name, spoil := range map[string]func([]history.Event) []history.Event{
		"an acknowledged write is lost with a primary that replicated asynchronously": func(h []history.Event) []history.Event {
			return append(h, write(history.Wrote, "a", "1", "a-1", "a-4", 6))
		},
		"an acknowledged write is lost with the timeline, also if replication was synchronous": func(h []history.Event) []history.Event {
			return append(rename(h, "lose, async", "lose, sync"), write(history.Wrote, "c", "a timeline that was discarded", "", "c-1", 6))
		},
		"each of two primaries has a leader": func(h []history.Event) []history.Event {
			h = append(h, history.Event{Kind: history.Primary, Text: "n1", Token: 1, At: second(11), Took: lasts(11, 22)})
			return append(h, process("c", first+1, 12, 23)...)
		},
	} {
		if claims := broken(spoil(failover())); len(claims) > 0 {
			t.Errorf("%s: rejected: %q", name, claims)
		}
	}
}

func TestMeasureComputesTheCostsOfAFault(t *testing.T) {
	h := append(failover(), write(history.Wrote, "a", "1", "a-1", "a-4", 6), history.Event{Process: "b", Kind: history.Quit, At: second(12)})
	h = append(h, process("c", later+1, 15.5, 18)...)
	rows := measure(h)
	if len(rows) != 1 {
		t.Fatalf("%d rows, want 1: %+v", len(rows), rows)
	}
	r := rows[0]
	// n2 takes writes from 14, and b leads from 15. That a led until 11 while n1 was gone
	// since 10 does not count.
	if want := []time.Duration{time.Second}; !slices.Equal(r.without, want) {
		t.Errorf("without a leader for %v, want %v", r.without, want)
	}
	if want := []time.Duration{lasts(14.9, 15)}; !slices.Equal(r.back, want) {
		t.Errorf("without a leader for %v since the route was back, want %v", r.back, want)
	}
	if r.text != "lose, async" || r.times != 1 || r.overlap != 2500*time.Millisecond || r.acknowledged != 3 || r.lost != 1 || r.quit != 1 {
		t.Errorf("got %+v", r)
	}
}

// A connection that hangs does not hide that later ones succeed. A failed connection ends the
// interval.
func TestReachedRequiresConsecutiveSuccessfulConnections(t *testing.T) {
	yes := func(began, answered float64) *connection {
		return &connection{second(began), second(answered), true}
	}
	no := &connection{}
	got := reached([]*connection{no, yes(1, 9), yes(2, 3), yes(4, 5), no, yes(6, 7), no, yes(8, 8.5), yes(9, 9.5)})
	if want := []stretch{{second(3), second(4)}, {second(8.5), second(9)}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestQuantile(t *testing.T) {
	for q, want := range map[float64]time.Duration{0.5: 2, 0.99: 4, 1: 4, 0.25: 1} {
		if got := quantile([]time.Duration{1, 2, 3, 4}, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
}

func TestThePageHasAllFaultsAndFigures(t *testing.T) {
	path := t.TempDir() + "/page.md"
	if err := judge(failover()).write(path, "make ha SEED=7"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults() {
		if !strings.Contains(string(text), "| `"+f.name+"` | "+f.about+" |") {
			t.Errorf("the page does not describe %s", f.name)
		}
	}
	for _, want := range []string{"`make ha SEED=7`", "| `lose` | async | 1 | 1.0 s | 1.0 s | 100 ms | 100 ms | 0 | 2 | 0 | 0 |"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}

var check = must.Check

// open opens a pool that is closed at the end of the test.
func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open("pgx", dsn)
	check(t, err)
	t.Cleanup(func() { check(t, pool.Close()) })
	return pool
}

// The store is another server. It remembers the token of a leader on the timeline that Patroni
// has discarded.
func TestAFencedStoreRefusesLeadersOfADiscardedTimelineUntilTheEpochIsRaised(t *testing.T) {
	if err := cluster.Missing(t.Context()); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	servers, err := cluster.Start(ctx)
	check(t, err)
	defer func() { check(t, servers.Stop()) }()
	storeServer, err := pgcluster.Start(ctx)
	check(t, err)
	defer func() { check(t, storeServer.Stop()) }()
	check(t, storeServer.Exec(ctx, fence.CreateTable))
	admin, err := connect(ctx, servers)
	check(t, err)
	_, err = admin.Exec(ctx, "CREATE ROLE "+fleet.Role+" LOGIN")
	check(t, errors.Join(err, admin.Close(ctx)))

	pool, store := open(t, dsn(servers, multi)), open(t, storeServer.DSN())
	// lead leads once and writes to the store. Each leader is another candidate on one pool.
	var fell atomic.Int64
	report := hooks.Funcs{Error: func(_ context.Context, f hooks.Failure) {
		if errors.Is(f.Err, elector.ErrTokenFell) {
			fell.Add(1)
		}
	}}
	lead := func() (token int64, written error) {
		t.Helper()
		e, err := elector.New(pool, "discarded", elector.WithLease(fleet.Lease), elector.WithHeartbeatInterval(fleet.Heartbeat), elector.WithHooks(report))
		check(t, err)
		var term *elector.Term
		for term == nil { // a standby may still answer
			check(t, ctx.Err())
			term, err = e.Campaign(ctx)
			if err != nil && !errors.Is(err, elector.ErrServerReadOnly) {
				t.Logf("campaign: %v", err)
			}
		}
		tx, err := store.BeginTx(ctx, nil)
		check(t, err)
		written = fence.Advance(ctx, tx, "lamp", term.Token())
		check(t, errors.Join(tx.Commit(), term.Resign(ctx), e.Close(ctx)))
		return term.Token(), written
	}

	first, written := lead()
	check(t, written)
	old, err := servers.AwaitPrimary(ctx)
	check(t, err)
	var promoted int64
	check(t, discardTimeline(ctx, servers, old, func() error {
		promoted, written = lead()
		return written
	}))
	if n := fell.Load(); n > 0 {
		t.Errorf("%d reports that the token fell before it did", n)
	}
	if promoted <= first {
		t.Errorf("the token after the promotion, %d, is not larger than the one before, %d", promoted, first)
	}
	if back, written := lead(); back >= promoted || !errors.Is(written, fence.ErrStale) {
		t.Fatalf("on the older timeline the token is %d, after %d, and the store says %v: nothing was discarded", back, promoted, written)
	}
	if n := fell.Load(); n != 1 {
		t.Errorf("%d reports that the token fell, want one", n)
	}

	admin, err = connect(ctx, servers)
	check(t, err)
	_, err = admin.Exec(ctx, "ALTER DATABASE postgres SET pgelector.epoch = '1'")
	check(t, errors.Join(err, admin.Close(ctx)))
	if raised, written := lead(); raised <= promoted || written != nil || fell.Load() != 1 {
		t.Errorf("with the epoch the token is %d, after %d, and the store says %v; %d reports that it fell", raised, promoted, written, fell.Load())
	}
}
