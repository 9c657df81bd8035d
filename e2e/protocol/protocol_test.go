// Package protocol_test checks docs/protocol.md against the code, and against what a real server
// computes and shows.
package protocol_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sharedlock "github.com/pgelector/pgelector/internal/shared"

	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/inbox"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/seat"
	"github.com/pgelector/pgelector/shard"
)

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }

var check = must.Check

func connect(t *testing.T) *sql.DB {
	t.Helper()
	pool, err := sql.Open("pgx", shared.Get(t).DSN())
	check(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/protocol.md")
	check(t, err)
	return string(text)
}

const (
	pid  = 4242
	term = 1767225600 // 2026 begins
)

func TestTheVectorsAreThoseOfTheCodeAndOfTheServer(t *testing.T) {
	text, pool := page(t), connect(t)
	var statements []string
	block := regexp.MustCompile("(?s)```sql\n(.*?)```").FindStringSubmatch(text)
	for statement := range strings.SplitSeq(block[1], ";\n") {
		statements = append(statements, statement)
	}
	compute := func(statement int, args ...any) (key int64) {
		t.Helper()
		check(t, pool.QueryRow(statements[statement], args...).Scan(&key))
		return key
	}
	hash := func(s string) int64 { return compute(0, s) }
	hashOf := func(s string, key int64) int64 { return compute(1, s, key) }
	pair := func(key int64) string {
		high, low := lockkey.Halves(key)
		return fmt.Sprintf("%d, %d", high, low)
	}
	class := func(of string, low int) string {
		return fmt.Sprintf("%d, %d", uint64(hash("pgelector "+of))>>32&^(1<<31), low)
	}
	orders := elector.KeyFromName("orders")
	for _, same := range []struct {
		what         string
		code, server int64
	}{
		{"election", orders, hash("pgelector:orders")},
		{"seat", seat.Key(orders), hashOf("pgelector seat:", orders)},
		{"resign", inbox.ResignKey(orders), hashOf("pgelector resign:", orders)},
		{"transfer", inbox.TransferKey(orders), hashOf("pgelector transfer:", orders)},
		{"life", sharedlock.LifeKey("web-1", pid), hash("pgelector life:4242:web-1")},
		{"offer", seat.OfferKey("web-1", orders), hash(fmt.Sprintf("pgelector offer:%d:web-1", orders))},
		{"answer", inbox.AnswerKey(pid, "3/7"), hash("pgelector answer:4242:3/7")},
		{"shard", elector.KeyFromName(shard.Election("billing", "eu")), hash("pgelector:billing/eu")},
		{"member", elector.KeyFromName(shard.Seats("billing")[0]), hash("pgelector:billing#0")},
		{"last member", elector.KeyFromName(shard.Seats("billing")[127]), hash("pgelector:billing#127")},
	} {
		if same.code != same.server {
			t.Errorf("%s: the code computes %d, and the SQL of the page %d", same.what, same.code, same.server)
		}
	}
	var rows strings.Builder
	for _, row := range [][2]string{
		{"election", fmt.Sprint(orders)},
		{"guard", pair(orders)},
		{"seat", pair(seat.Key(orders))},
		{"other seat", pair(seat.Key(orders) ^ 1)},
		{"offer", pair(seat.OfferKey("web-1", orders))},
		{"bell", class("bell", pid)},
		{"resign", pair(inbox.ResignKey(orders))},
		{"transfer", pair(inbox.TransferKey(orders))},
		{"answer", pair(inbox.AnswerKey(pid, "3/7"))},
		{"life", pair(sharedlock.LifeKey("web-1", pid))},
		{"lease", class("lease", 10_000)},
		{"lease in transaction", class("lease in transaction", 10_000)},
		{"since", class("since", term)},
		{"priority", class("priority", -12)},
		{"commit", pair(hashOf("pgelector commit:", orders))},
		{"roster", pair(hash("pgelector roster: public"))},
		{"billing/eu", fmt.Sprint(elector.KeyFromName(shard.Election("billing", "eu")))},
		{"billing#0", fmt.Sprint(elector.KeyFromName(shard.Seats("billing")[0]))},
	} {
		fmt.Fprintf(&rows, "%-22s %s\n", row[0], row[1])
	}
	if !strings.Contains(text, "```text\n"+rows.String()+"```") {
		t.Errorf("the vectors are\n%s", &rows)
	}
}

var (
	locking = regexp.MustCompile(`pg_(?:try_)?advisory_(?:xact_)?lock(_shared)?\(\s*([^,)]*)`)
	setting = regexp.MustCompile(`\bpgelector\.[a-z]+`)
	hashed  = regexp.MustCompile(`"(pgelector [a-z]+:)`)
	purpose = regexp.MustCompile(`purposeKey\("([a-z]+)"`)
	event   = regexp.MustCompile(`\bevent\w+ +(?:event )?= "(\w+)"`)
)

// taken is the lock of the page for what the SQL locks.
var taken = map[string]string{
	"sqlc.arg(key": "election", "pg_catalog.current_setting('pgelector.key'": "election", "k.key::bigint": "election", "key": "election",
	"sqlc.arg(guard_high": "guard", "g.high::integer": "guard", "sqlc.arg(seat_high": "seats", "983268819": "bell",
	"sqlc.arg(offer_high": "offer", "k.high::integer": "offer", "sqlc.arg(request_high": "resign", "318473925": "lease", "1530767677": "lease", "521961639": "since", "1901988892": "priority",
	"sqlc.arg(scope_high": "commit", "sqlc.arg(session_high": "random", "sqlc.arg(high": "random",
}

func TestThePageHasEveryLockAndNameOfTheCode(t *testing.T) {
	text, used := page(t), map[string]bool{}
	modes, lock := map[string]string{}, ""
	for _, row := range regexp.MustCompile(`(?m)^\| (\w*) ?\|[^|]*\| (exclusive|share) \|`).FindAllStringSubmatch(text, -1) {
		lock = cmp.Or(row[1], lock)
		modes[lock] += row[2]
	}
	for _, pattern := range []string{"queries/*.sql", "queries/roster/*.sql", "internal/*/*.go", "elector/*.go", "roster/*.go", "shard/*.go", "notify/*/*.go"} {
		files, err := filepath.Glob("../../" + pattern)
		check(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := os.ReadFile(name)
			check(t, err)
			code := regexp.MustCompile(`(?m)^\s*(--|//).*$`).ReplaceAllString(string(source), "")
			wants := setting.FindAllString(code, -1)
			for _, m := range slices.Concat(hashed.FindAllStringSubmatch(code, -1), event.FindAllStringSubmatch(code, -1)) {
				wants = append(wants, m[1])
			}
			for _, m := range purpose.FindAllStringSubmatch(code, -1) {
				wants = append(wants, "pgelector "+m[1]+":")
			}
			for _, m := range locking.FindAllStringSubmatch(code, -1) {
				mode := "exclusive"
				if m[1] != "" {
					mode = "share"
				}
				if !strings.Contains(modes[taken[m[2]]], mode) {
					t.Errorf("%s: the page has no %s lock %q", name, mode, m[2])
				}
				used[m[2]] = true
			}
			for _, want := range wants {
				if !strings.Contains(text, want) {
					t.Errorf("%s: the page does not name %q", name, want)
				}
			}
		}
	}
	if len(used) != len(taken) || !strings.Contains(text, "| channel `"+elector.NotifyChannel+"` |") {
		t.Errorf("the code locks only %v, or notifies elsewhere", used)
	}
}

func TestATokenIsMadeOfTimelineEpochAndTransaction(t *testing.T) {
	says := fmt.Sprintf("Timeline 1, epoch 3 and transaction 1000 make %d.", int64(1+3)<<48|1000)
	if !strings.Contains(strings.Join(strings.Fields(page(t)), " "), says) {
		t.Errorf("the page lacks %q", says)
	}
	pool := connect(t)
	t1, _ := lead(t, pool, elector.WithTokenEpoch(3))
	var status string
	check(t, pool.QueryRow("SELECT pg_xact_status($1::text::xid8)", fmt.Sprint(t1.Token()&(1<<48-1))).Scan(&status))
	if t1.Token()>>48 != 1+3 || status != "committed" {
		t.Errorf("token %x, transaction %s", t1.Token(), status)
	}
}

// lead leads a new election until the test ends, and returns the backend, too. Resign waits for it.
func lead(t *testing.T, pool *sql.DB, opts ...elector.Option) (*elector.Term, int32) {
	t.Helper()
	e, err := elector.New(pool, t.Name(), append([]elector.Option{elector.WithCandidateID("web-1")}, opts...)...)
	check(t, err)
	term, err := e.Campaign(t.Context())
	check(t, err)
	t.Cleanup(func() {
		_ = term.Resign(context.Background())
		check(t, e.Close(context.Background()))
	})
	leader, err := e.Leader(t.Context())
	check(t, err)
	return term, leader.PID
}

// locksOf lists the locks of a session as the page has them, without a heartbeat's bell.
func locksOf(t *testing.T, pool *sql.DB, condition string, args ...any) (all []string) {
	t.Helper()
	rows, err := pool.Query(`SELECT CASE objsubid WHEN 1 THEN ((classid::bigint << 32) | objid::bigint)::text
			ELSE concat(classid::bigint::bit(32)::integer, ', ', CASE classid WHEN 521961639 THEN 0 ELSE objid::bigint::bit(32)::integer END) END || ' ' || mode
		FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND NOT (classid = 983268819 AND mode = 'ExclusiveLock') AND `+condition, args...)
	check(t, err)
	defer rows.Close()
	for rows.Next() {
		var lock string
		check(t, rows.Scan(&lock))
		all = append(all, lock)
	}
	check(t, rows.Err())
	slices.Sort(all)
	return all
}

func exclusive(key int64) string { return fmt.Sprint(key, " ExclusiveLock") }

func pairOf(key int64, mode string) string {
	high, low := lockkey.Halves(key)
	return fmt.Sprintf("%d, %d %s", high, low, mode)
}

func same(t *testing.T, who string, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s holds %q, want %q", who, got, want)
	}
}

// eventually waits for locks, which are compared by the caller.
func eventually(t *testing.T, n int, list func() []string) (got []string) {
	t.Helper()
	for deadline := time.Now().Add(must.Patience); len(got) != n && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		got = list()
	}
	return got
}

func TestSessionsHoldTheLocksOfThePage(t *testing.T) {
	pool, key := connect(t), elector.KeyFromName(t.Name())
	patient := []elector.Option{elector.WithLease(time.Minute), elector.WithDrain(20 * time.Second), elector.WithHeartbeatInterval(time.Second)}
	_, backend := lead(t, pool, patient...)
	const lease, since = "318473925, 60000 ShareLock", "521961639, 0 ShareLock"
	same(t, "the leader", locksOf(t, pool, "pid = $1", backend),
		exclusive(key), pairOf(seat.Key(key), "ExclusiveLock"), lease, since)

	e, err := elector.New(pool, t.Name(), append(patient, elector.WithCandidateID("web-2"), elector.WithRetryInterval(50*time.Millisecond))...)
	check(t, err)
	check(t, e.Start(t.Context()))
	second := eventually(t, 2, func() []string { return locksOf(t, pool, "application_name = 'web-2' AND state = 'idle'") })
	same(t, "the deputy", second, pairOf(seat.Key(key)^1, "ExclusiveLock"), lease)
	check(t, e.Close(context.Background()))

	// Its work does not return while the request stands.
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := elector.RequestResign(ctx, pool, t.Name())
		answered <- err
	}()
	bell := fmt.Sprintf("%d, %d ShareLock", inbox.Bell, backend)
	request := eventually(t, 2, func() []string { return locksOf(t, pool, "pid <> $1 AND application_name <> 'web-2'", backend) })
	same(t, "who asks", request, pairOf(inbox.ResignKey(key), "ShareLock"), bell)
	cancel()
	if err := <-answered; !errors.Is(err, elector.ErrUnanswered) {
		t.Error(err)
	}
}

func TestASharedSessionHoldsTheLocksOfThePage(t *testing.T) {
	pool, key := connect(t), elector.KeyFromName(t.Name())
	s, err := elector.NewSession(pool, elector.WithCandidateID("web-1"))
	check(t, err)
	defer s.Close(context.Background())
	e, err := s.Elector(t.Name())
	check(t, err)
	term, err := e.Campaign(t.Context())
	check(t, err)
	leader, err := e.Leader(t.Context())
	check(t, err)
	same(t, "a shared session", locksOf(t, pool, "pid = $1", leader.PID), exclusive(key),
		pairOf(sharedlock.LifeKey("web-1", leader.PID), "ExclusiveLock"), "318473925, 10000 ShareLock")
	check(t, term.Resign(t.Context()))
}

func TestATransactionHoldsTheLocksOfThePage(t *testing.T) {
	pool, key := connect(t), elector.KeyFromName(t.Name())
	_, backend := lead(t, pool, elector.WithScope(elector.TransactionScope))
	same(t, "a leader in transaction scope", locksOf(t, pool, "pid = $1", backend), exclusive(key),
		pairOf(seat.Key(key), "ExclusiveLock"), "1530767677, 10000 ShareLock", "521961639, 0 ShareLock")
}
