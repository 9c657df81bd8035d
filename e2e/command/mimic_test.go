//go:build unix

package command_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/mimic"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

var (
	sessionLock = regexp.MustCompile(`pg_(try_)?advisory_lock(_shared)?\(`)
	unlocking   = regexp.MustCompile(`pg_advisory_unlock(_shared)?\(`)
	setting     = regexp.MustCompile(`(?i)^\s*SET |set_config\(`)
)

// imitations are rows of two tables in docs/servers.md. Each has a source: nothing is imitated that
// nobody has written down.
var imitations = []struct {
	name, behaviour, source string
	stubs                   []bool // of transactions, too
	policy                  *mimic.Policy
}{
	{name: "as CockroachDB to 26.2", behaviour: "grants everything",
		source: "https://github.com/cockroachdb/cockroach/issues/13546", stubs: []bool{true}},
	{name: "as CockroachDB 26.3", behaviour: "real transaction locks, session locks that do nothing",
		source: "https://github.com/cockroachdb/cockroach/pull/168353", stubs: []bool{false}},
	{name: "as PgDog", behaviour: "keeps a backend from a session lock on, also one not granted",
		source: "https://github.com/pgdogdev/pgdog/blob/28633dbfa41530ab2e4c5956033001f1713abc08/pgdog/src/frontend/router/parser/advisory_lock/mod.rs",
		policy: &mimic.Policy{Least: 3, Keeps: func(statement string) int {
			switch {
			case unlocking.MatchString(statement):
				return -1
			case sessionLock.MatchString(statement):
				return 1
			}
			return 0
		}}},
	{name: "as RDS Proxy", behaviour: "keeps a backend from `SET` or a session lock on, not for a transaction lock",
		source: "https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-pinning.html",
		policy: &mimic.Policy{Least: 3, Keeps: func(statement string) int {
			if setting.MatchString(statement) || sessionLock.MatchString(statement) {
				return 1
			}
			return 0
		}}},
	{name: "as Pgpool-II", behaviour: "changes the backend within a session: `statement_level_load_balance`",
		source: "https://www.pgpool.net/docs/latest/en/html/runtime-config-load-balancing.html",
		policy: &mimic.Policy{Least: 3, Turn: 7, Keeps: mimic.Session.Keeps}},
	{name: "as PgBouncer without reset", behaviour: "session mode with an empty `server_reset_query`",
		source: "https://www.pgbouncer.org/config.html", policy: &mimic.Session},
}

// One table in docs/servers.md has doctor's answers for each, the other what becomes of candidates, with either driver.
func TestWhatImitatedServersAndPoolersAreTakenFor(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/servers.md")
	check(t, err)
	for _, driver := range []string{"pgx", "pq"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			answers, fates := make([]string, len(imitations)), make([]string, len(imitations))
			var all sync.WaitGroup
			atOnce := make(chan struct{}, 2) // each has a server, and some trials have seconds
			for i, m := range imitations {
				s := &imitated{T: t, driver: driver}
				if m.policy != nil {
					s.dsn = before(t, own(t), *m.policy)
				} else {
					s.dsn = stubbed(t, m.stubs[0])
				}
				if driver == "pgx" { // as for each pooler that knows no prepared statements
					s.dsn += "&default_query_exec_mode=exec"
				}
				var open []string
				if m.policy != nil { // the imitated pooler passes a notification on only with an answer
					open = append(open, "NOTIFY")
				}
				all.Go(func() {
					atOnce <- struct{}{}
					defer func() { <-atOnce }()
					answers[i] = fmt.Sprintf("|%s|%s", m.name, examine(t, s.dsn, driver).cells("imitated", open...))
					fates[i] = fmt.Sprintf("|%s|[%s](%s)|%s|%s|", m.name, m.behaviour, m.source, s.lead(elector.SessionScope), s.lead(elector.Auto))
				})
			}
			all.Wait()
			for _, rows := range [][]string{answers, fates} {
				if table := strings.Join(rows, "\n"); !strings.Contains(string(page), table) {
					t.Errorf("docs/servers.md should say:\n%s", table)
				}
			}
		})
	}
}

// before is the address of a pooler before a server.
func before(t *testing.T, c *pgcluster.Cluster, policy mimic.Policy) (dsn string) {
	t.Helper()
	pooler, err := mimic.New(c.Addr(), policy)
	check(t, err)
	t.Cleanup(pooler.Close)
	return "postgres://postgres@" + pooler.Addr() + "/postgres?sslmode=disable"
}

// stubbed is the address of a server whose locks do nothing.
func stubbed(t *testing.T, transactions bool) (dsn string) {
	t.Helper()
	cluster := own(t, pgcluster.WithSetting("allow_system_table_mods", "on"))
	pool, err := sql.Open("pgx", cluster.DSN())
	check(t, err)
	check(t, mimic.Stub(t.Context(), pool, transactions))
	check(t, pool.Close())
	return cluster.DSN()
}

// An imitated server or pooler is reached over that driver.
type imitated struct {
	*testing.T
	driver, dsn string
}

// lead has two candidates campaign, the second one beside the first one's term. It returns what became of them.
func (s *imitated) lead(scope elector.Scope) string {
	var leaders []*elector.Term
	verdict := ""
	var both []*elector.Elector
	for range 2 {
		driver := map[string]string{"pgx": "pgx", "pq": "postgres"}[s.driver]
		pool, err := sql.Open(driver, s.dsn)
		check(s.T, err)
		s.Cleanup(func() { _ = pool.Close() })
		e, err := elector.New(pool, "imitated "+scope.String(), elector.WithScope(scope), elector.WithLease(30*time.Second), elector.WithHeartbeatInterval(600*time.Millisecond), elector.WithRetryInterval(100*time.Millisecond), elector.WithTakeover(elector.Poll))
		check(s.T, err)
		both = append(both, e)
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		for tries := 0; len(leaders) == 0 && tries < 10 && ctx.Err() == nil; {
			term, elected, err := e.TryCampaign(ctx)
			switch {
			case elected:
				leaders = append(leaders, term)
				verdict = "leads"
				if e.Settings().Scope == elector.TransactionScope {
					verdict = "leads in a transaction"
				}
			case errors.Is(err, elector.ErrUnsupportedServer):
				cancel()
				verdict = "`ErrUnsupportedServer`"
			case errors.Is(err, elector.ErrSessionPooled):
				cancel()
				verdict = "`ErrSessionPooled`"
			default:
				verdict = "attempts fail"
				tries++
				time.Sleep(100 * time.Millisecond)
			}
		}
		cancel()
	}
	if len(leaders) == 1 { // never two, also while the first one's backend may change
		for range 20 {
			ctx, cancel := context.WithTimeout(s.Context(), patience)
			term, elected, _ := both[1].TryCampaign(ctx)
			cancel()
			if elected && leaders[0].Valid() {
				s.Errorf("%s, %v: two lead", s.dsn, scope)
			}
			if elected {
				_ = term.Resign(s.Context())
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err := context.Cause(leaders[0].Context()); err != nil {
			verdict += ", then loses it"
		}
		_ = leaders[0].Resign(s.Context())
	}
	return verdict
}
