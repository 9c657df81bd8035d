//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/roster"
)

// documentedGrants returns the statements in docs/observing.md that grant privileges to a role.
func documentedGrants(t *testing.T, role string) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/observing.md")
	check(t, err)
	all := regexp.MustCompile(`(?m)^GRANT .* TO `+role+`;$`).FindAllString(string(text), -1)
	if len(all) == 0 {
		t.Fatalf("docs/observing.md grants nothing to %s", role)
	}
	return all
}

// A late record does not overwrite a newer one. If the end of a term is recorded late or
// never, the term ends when the next begins.
func TestTermsMayBeRecordedLateAndOutOfOrder(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema := s.schema(t)
		old := rosterOn(t, d.open(t, 0, s.DSN()), schema)
		next := rosterOn(t, d.open(t, 1, s.DSN()), schema)
		ctx := context.Background()
		hour := func(n int) time.Time { return time.Now().Add(time.Duration(n-10) * time.Hour) } // n hours after a time ten hours ago
		us := func(id string) hooks.Origin { return hooks.Origin{Election: "any", Key: 1, CandidateID: id} }

		next.OnElected(ctx, hooks.Elected{Origin: us("next"), Token: 20, At: hour(5)})
		written(t, next)
		// By its clock it led for two hours during the next term.
		old.OnDemoted(ctx, hooks.Demoted{Origin: us("old"), Token: 10, Reason: hooks.SessionLost, At: hour(7), Held: 4 * time.Hour})
		written(t, old)
		old.OnElected(ctx, hooks.Elected{Origin: us("old"), Token: 10, At: hour(3)}) // too late
		eventually(t, "it is written", func() bool { return old.Stats().Writes > 1 && old.Stats().Waiting == 0 })

		history := terms(t, next, 1)
		if len(history) != 2 || history[0].Token != 20 || history[1].Token != 10 {
			t.Fatalf("the terms are %+v", history)
		}
		if term := history[1]; term.Reason != string(hooks.SessionLost) || !term.EndedAt.Equal(history[0].ElectedAt) {
			t.Errorf("the old term is %+v", term)
		}
		if term := history[0]; term.Reason != roster.Lost || !term.EndedAt.IsZero() { // nobody holds the lock
			t.Errorf("the last term is %+v", term)
		}
		// The server's clock counts, whatever the client's clock says.
		for token, hours := range map[int]int{10: 7, 20: 5} {
			if ago := one[float64](t, s.admin, `SELECT extract(epoch FROM now() - elected_at)::float8 / 3600 FROM `+quoted(schema)+`.roster_terms WHERE token = $1`, token); ago < float64(hours) || ago > float64(hours)+0.1 {
				t.Errorf("token %d was elected %v hours ago, want %d", token, ago, hours)
			}
		}
	})
}

// A term without a recorded end goes on if it is the newest and its candidate holds the
// lock. It does not if another candidate holds the lock or the same one was elected again.
func TestATermGoesOnOnlyWhileItsCandidateHoldsTheLock(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		r := rosterOn(t, pool, s.schema(t))
		leader := s.stand(t, pool, s.election(t)).run(t, nil) // without a roster
		leader.elected(t)
		for i, id := range []string{"another", leader.CandidateID(), leader.CandidateID()} {
			if i > 0 {
				if term := terms(t, r, leader.Key())[0]; (term.Reason == roster.Lost) != (i == 1) {
					t.Errorf("the newest term of %q has the reason %q", term.CandidateID, term.Reason)
				}
			}
			r.OnElected(context.Background(), hooks.Elected{Origin: hooks.Origin{Election: "any", Key: leader.Key(), CandidateID: id}, Token: int64(i), At: time.Now()})
			eventually(t, "the term is recorded", func() bool { return len(terms(t, r, leader.Key())) == i+1 })
		}
		history := terms(t, r, leader.Key())
		if history[0].Reason != "" || history[1].Reason != roster.Lost || !history[1].EndedAt.Equal(history[0].ElectedAt) || history[2].Reason != roster.Lost {
			t.Errorf("the terms are %+v", history)
		}
	})
}

func TestCleanUpRemovesOldRowsOnly(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema := s.schema(t)
		r := rosterOn(t, d.open(t, 0, s.DSN()), schema, roster.WithRetention(time.Hour, 3))
		leader := s.stand(t, d.open(t, 0, s.DSN()), s.election(t)).run(t, nil)
		leader.elected(t)
		// The keys are of no other test: an election that is held keeps its terms.
		insert := func(statement string, args ...any) {
			t.Helper()
			_, err := s.admin.Exec(strings.ReplaceAll(statement, "chosen", quoted(schema)), args...)
			check(t, err)
		}
		const term = `INSERT INTO chosen.roster_terms VALUES ($1, $2, 'any', $3, now() - $4::interval, now() - $5::interval, NULL, NULL)`
		insert(term, 9301, 1, "ended long ago", "3 hours", "2 hours")
		insert(term, 9301, 2, "superseded long ago", "2 hours", nil)
		insert(term, 9301, 3, "superseded just now", "90 min", nil)
		insert(term, 9301, 4, "its election is not held", "1 min", nil)
		insert(term, 9302, 1, "gone with its election", "3 hours", nil)
		for i := range 5 {
			insert(term, 9303, i, "surplus, or not", "1 min", "30 s")
		}
		insert(term, leader.Key(), 1, leader.CandidateID(), "900 days", nil)
		const candidate = `INSERT INTO chosen.roster_candidates VALUES (1, $1, 'any', '', '{}', now(), NULL, now(), now() - $2::interval, NULL)`
		insert(candidate, "silent for days", "25 hours")
		insert(candidate, "silent for hours", "23 hours")

		removed, err := r.CleanUp(soon(t))
		check(t, err)
		if removed != 6 {
			t.Errorf("%d rows were removed, want 6", removed)
		}
		left := list[string](t, s.admin, strings.ReplaceAll(`SELECT key || ':' || token FROM chosen.roster_terms WHERE key BETWEEN 9301 AND 9303 ORDER BY key, token`, "chosen", quoted(schema)))
		if got := strings.Join(left, " "); got != "9301:3 9301:4 9303:2 9303:3 9303:4" {
			t.Errorf("left are %s", got)
		}
		if held := terms(t, r, leader.Key()); len(held) != 1 || held[0].Reason != "" {
			t.Errorf("the current term is %+v", held)
		}
		if len(states(t, r, 1)) != 1 {
			t.Errorf("left are %v", states(t, r, 1))
		}
		if again, err := r.CleanUp(soon(t)); err != nil || again != 0 {
			t.Errorf("the second time it removes %d, %v", again, err)
		}
	})
}

func TestACleanUpIsBoundedAndCanRunInParallel(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	schema := s.schema(t)
	const rows, cleaners = 3500, 4
	r := rosterOn(t, s.admin, schema)
	_, err := s.admin.Exec(`INSERT INTO `+quoted(schema)+`.roster_terms
		SELECT 1, n, 'any', 'one', now() - '99 days'::interval, now() - '98 days'::interval, 'resigned', '' FROM generate_series(1, $1::int) AS n`, rows)
	check(t, err)
	if removed, err := r.CleanUp(soon(t)); err != nil || removed != 1000 {
		t.Errorf("one clean-up removed %d, %v; want 1000", removed, err)
	}
	var mu sync.Mutex
	var sum int64
	var all sync.WaitGroup
	for i := range cleaners {
		r := rosterOn(t, mixed.open(t, i, s.DSN()), schema)
		all.Go(func() {
			for {
				removed, err := r.CleanUp(soon(t))
				expect(t, err)
				mu.Lock()
				sum += removed
				mu.Unlock()
				if removed == 0 || err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if sum > rows-1000 {
		t.Errorf("parallel clean-ups removed %d rows of %d", sum, rows-1000)
	}
	for { // rows that each left to another
		removed, err := r.CleanUp(soon(t))
		check(t, err)
		sum += removed
		if removed == 0 {
			break
		}
	}
	if sum != rows-1000 {
		t.Errorf("%d rows were removed, want %d", sum, rows-1000)
	}
}

// docs/observing.md states this cost.
func TestAtRestARosterSendsOneStatementPerIntervalAndLittleWAL(t *testing.T) {
	inSessionScope(t, "lib/pq sends statements again, in a transaction")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := on(t, own(t))
		pool, counted := d.openCounted(t, 0, s.DSN())
		r := rosterOn(t, pool, "pgelector", roster.WithPublishInterval(2*time.Second)) // which bounds a write, too
		publishTerm(r, "one", 7)
		eventually(t, "the first clean-up is done", func() bool { return counted.now()["RemoveTerms"] > 0 })
		writes := r.Stats().Writes
		_, err := s.admin.Exec("CHECKPOINT") // after it the first change of each page logs the whole page
		check(t, err)
		eventually(t, "the pages were logged", func() bool { return r.Stats().Writes > writes })
		before, from, wal := counted.now(), r.Stats().Writes, one[string](t, s.admin, "SELECT pg_current_wal_insert_lsn()::text")
		eventually(t, "some intervals pass", func() bool { return r.Stats().Writes >= from+5 })
		sent, wrote := counted.since(before), r.Stats().Writes-from
		bytes := one[int64](t, s.admin, "SELECT (pg_current_wal_insert_lsn() - $1::text::pg_lsn)::bigint", wal)
		delete(sent, "prepare") // lib/pq's second round trip
		delete(sent, "begin")   // of the statement's transaction
		delete(sent, "RollBackAndChain")
		if len(sent) != 1 || int64(sent["Publish"]) < wrote-1 || int64(sent["Publish"]) > wrote+1 { // one may be under way
			t.Errorf("%d publications sent %v, want one Publish each", wrote, sent)
		}
		if each := bytes / wrote; each > 1000 {
			t.Errorf("a publication wrote %d bytes of WAL", each)
		} else {
			t.Logf("a publication wrote %d bytes of WAL", each)
		}
		eventually(t, "every publication was a HOT update, which writes no index", func() bool {
			return one[bool](t, s.admin, `SELECT n_tup_upd >= $1 AND n_tup_hot_upd = n_tup_upd FROM pg_stat_user_tables WHERE relname = 'roster_candidates'`, wrote)
		})
	})
}

// Without its synchronous standby the server delays synchronous commits. Publications are
// asynchronous; records of terms are not.
func TestAPublicationDoesNotWaitForDiskOrStandby(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := on(t, own(t))
		r := rosterOn(t, d.open(t, 0, s.DSN()), "pgelector", roster.WithPublishInterval(3*time.Second)) // which bounds a write, too
		s.set(t, "synchronous_standby_names", "away")
		r.OnCampaign(context.Background(), hooks.Campaign{Origin: hooks.Origin{Election: "any", Key: 1, CandidateID: "one"}, At: time.Now()})
		eventually(t, "it is published, again and again", func() bool { return r.Stats().Writes > 2 })
		if s := r.Stats(); s.Failures > 0 {
			t.Errorf("%d publications have failed: %v", s.Failures, s.Err)
		}
		publishTerm(r, "one", 7)
		eventually(t, "the record of a term waits", func() bool { return r.Stats().Failures > 0 })
		published := func() time.Time {
			all, err := r.Candidates(soon(t), 1)
			check(t, err)
			return all[0].PublishedAt
		}
		last := published()
		eventually(t, "meanwhile it is published, again and again", func() bool { return published().Sub(last) > 4*time.Second })
		s.set(t, "synchronous_standby_names", "")
		written(t, r)
	})
}

// quoted quotes an identifier, independently of the library.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// publishTerm makes a roster publish a candidate and record a term of it.
func publishTerm(r *roster.Roster, id string, token int64) hooks.Elected {
	e := hooks.Elected{Origin: hooks.Origin{Election: "any", Key: 1, CandidateID: id}, Token: token, At: time.Now()}
	r.OnElected(context.Background(), e)
	return e
}

// written waits until a roster has written all events.
func written(t *testing.T, r *roster.Roster) {
	t.Helper()
	eventually(t, "all events are written", func() bool { s := r.Stats(); return s.Writes > 0 && s.Waiting == 0 && s.Err == nil })
}

func TestARosterWorksInASchemaWithAnyName(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.database(t))
		for _, name := range []string{
			"public", "pgelector", "Capital", "with space", `quo"te`, `"`, `";DROP SCHEMA public CASCADE;--`, `a'b`, `back\slash`, "$1", "$$", "?", ":x",
			"chosen", "chosen.", "a.chosen.b", "select", "ünïcödé", "新しい", "-- name: X :one", "/*", "\n", strings.Repeat("x", 63),
		} {
			r := rosterOn(t, pool, name)
			publishTerm(r, "one", 7)
			written(t, r)
			all, err := r.Terms(soon(t), 10)
			check(t, err)
			if len(all) != 1 || all[0].Token != 7 {
				t.Errorf("%q: the terms are %+v", name, all)
			}
			if states(t, r, 1)["one"] != roster.Live {
				t.Errorf("%q: the candidate is not live", name)
			}
			check(t, r.Close(soon(t)))
			if got := one[int](t, pool, "SELECT count(*) FROM "+quoted(name)+".roster_terms"); got != 1 {
				t.Errorf("%q has %d terms, want the one", name, got)
			}
			_, err = r.CleanUp(soon(t))
			expect(t, err)
		}
	})
}

func TestTwentyProcessesCanMigrateAtOnce(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		// With these defaults a transaction does not see later commits.
		role := s.role(t, map[string]string{"default_transaction_isolation": "serializable"})
		dsn := s.database(t)
		address, err := url.Parse(dsn)
		check(t, err)
		database := strings.TrimPrefix(address.Path, "/")
		_, err = s.admin.Exec("GRANT CREATE ON DATABASE " + quoted(database) + " TO " + quoted(role))
		check(t, err)
		var all sync.WaitGroup
		for i := range 20 {
			r, err := roster.New(d.open(t, i, s.DSN(pgcluster.ForDatabase(database), pgcluster.ForRole(role))))
			check(t, err)
			all.Go(func() { expect(t, r.Migrate(soon(t))) })
		}
		all.Wait()
		if applied := list[int](t, d.open(t, 0, dsn), "SELECT version FROM pgelector.roster_migrations ORDER BY version"); !slices.Equal(applied, []int{1, 2, 3}) {
			t.Errorf("applied were %v, want each version once", applied)
		}
	})
}

func TestMigrateFailsOnAnotherApplicationsTable(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	schema := s.schema(t)
	_, err := s.admin.Exec(fmt.Sprintf("CREATE SCHEMA %[1]s; CREATE TABLE %[1]s.roster_terms (theirs text)", quoted(schema)))
	check(t, err)
	r, err := roster.New(s.admin, roster.WithSchema(schema))
	check(t, err)
	if err := r.Migrate(soon(t)); err == nil {
		t.Error("the migration used another application's table")
	}
	if left := list[string](t, s.admin, "SELECT tablename::text FROM pg_tables WHERE schemaname = $1", schema); len(left) != 1 {
		t.Errorf("the schema has the tables %v, want only the other application's", left)
	}
}

func TestATermIsRecordedInADatabaseThatLacksItsCharacters(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		name := s.encoded(t, "LATIN1")
		r := rosterOn(t, d.open(t, 0, s.DSN(pgcluster.ForDatabase(name))), "pgelector", roster.WithMetadata(map[string]string{"名": "é"}))
		r.OnElected(context.Background(), hooks.Elected{Origin: hooks.Origin{Election: "新しい", Key: 1, CandidateID: "one"}, Token: 7, At: time.Now()})
		written(t, r)
		want := map[string]string{"postgres": "???", "pgx": "新しい"}[d.name(0)] // pgx has the server take bytes for characters
		if all := terms(t, r, 1); len(all) != 1 || all[0].Election != want {
			t.Errorf("the terms are %+v, want one of %q", all, want)
		}
		if states(t, r, 1)["one"] != roster.Live {
			t.Error("the candidate is not live")
		}
	})
}

// encoded makes a database of that encoding, which is dropped at the end of the test.
func (s *server) encoded(t *testing.T, encoding string) (name string) {
	t.Helper()
	name = unique("encoded")
	_, err := s.admin.Exec("CREATE DATABASE " + quoted(name) + " ENCODING '" + encoding + "' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	check(t, err)
	t.Cleanup(func() {
		_, err := s.admin.Exec("DROP DATABASE " + quoted(name) + " WITH (FORCE)")
		expect(t, err)
	})
	return name
}

// The text is not valid in the encoding (22021), or lacks an equivalent in it (22P05), also as an
// escape of JSON; and a table may refuse a row for any reason.
func TestARowThatTheServerRefusesCostsItselfOnly(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"EUC_JP", "LATIN1", "SQL_ASCII"} {
		t.Run(encoding, func(t *testing.T) {
			overEach(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				name := s.encoded(t, encoding)
				reported := make(chan error, 100)
				r := rosterOn(t, d.open(t, 0, s.DSN(pgcluster.ForDatabase(name))), "pgelector", roster.WithOnError(func(err error) {
					if !errors.Is(err, context.DeadlineExceeded) { // a write that took too long on a busy machine: it is tried again
						reported <- err
					}
				}))
				other := rosterOn(t, pq.open(t, 0, s.DSN(pgcluster.ForDatabase(name))), "pgelector")
				_, err := d.open(t, 0, s.DSN(pgcluster.ForDatabase(name))).Exec("ALTER TABLE pgelector.roster_terms ADD CHECK (token <> 3)")
				check(t, err)
				end := func(token int64, text string) {
					r.OnDemoted(context.Background(), hooks.Demoted{Origin: hooks.Origin{Election: "any", Key: 1, CandidateID: "one"},
						Token: token, Reason: hooks.LeadFailed, Err: errors.New(text), At: time.Now()})
				}
				for token, text := range []string{"plain", "新しい ÿ\U0001F600", "\u2028\xff\x00", "refused", "ｩｩ", "plain"} {
					end(int64(token), text)
				}
				eventually(t, "all but one are written", func() bool { return r.Stats().Writes > 0 && r.Stats().Waiting == 0 })
				for _, reader := range []*roster.Roster{r, other} {
					if all := terms(t, reader, 1); len(all) != 5 || all[0].Err != "plain" || all[4].Err != "plain" {
						t.Errorf("the terms are %+v", all)
					}
				}
				if stats := r.Stats(); stats.Dropped != 1 || stats.Err != nil {
					t.Errorf("got %+v, want one dropped", stats)
				}
				if states(t, r, 1)["one"] != roster.Live {
					t.Error("the candidate is not live")
				}
				check(t, r.Close(soon(t)))
				close(reported)
				err = <-reported
				wraps(t, err, roster.ErrDropped)
				for more := range reported {
					t.Error("reported as well:", more)
				}
			})
		})
	}
}

// A restart, a firewall or an idle timeout ends what is idle in the pool.
func TestIdleConnectionsThatTheServerHasEndedLoseNoWrite(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		pool, schema, who := d.open(t, 0, s.DSN()), s.schema(t), hooks.Origin{Election: "orders", Key: 1, CandidateID: "one"}
		pool.SetMaxIdleConns(5)
		r := rosterOn(t, pool, schema)
		var idle []*sql.Conn
		for range 5 {
			conn, err := pool.Conn(soon(t))
			check(t, err)
			idle = append(idle, conn)
		}
		for _, conn := range idle {
			var pid int
			check(t, conn.QueryRowContext(soon(t), "SELECT pg_backend_pid()").Scan(&pid))
			_, err := s.admin.ExecContext(soon(t), "SELECT pg_terminate_backend($1, 10000)", pid)
			check(t, err)
			check(t, conn.Close())
		}
		r.OnElected(t.Context(), hooks.Elected{Origin: who, Token: 7, At: time.Now()})
		r.OnDemoted(t.Context(), hooks.Demoted{Origin: who, Token: 7, At: time.Now(), Reason: hooks.Shutdown})
		check(t, r.Close(soon(t)))
		reader := rosterOn(t, d.open(t, 0, s.DSN()), schema)
		if all := terms(t, reader, 1); len(all) != 1 || all[0].Reason != string(hooks.Shutdown) {
			t.Errorf("the terms are %+v", all)
		}
	})
}

func TestARowWrittenByHandCanBeRead(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema := s.schema(t)
		r := rosterOn(t, d.open(t, 0, s.DSN()), schema)
		_, err := s.admin.Exec("INSERT INTO " + quoted(schema) + `.roster_candidates VALUES
			(1, 'one', 'any', '', '{"deep": {"a": [1, "x"]}, "number": 7, "null": null}', now(), 'NaN', now(), now())`)
		check(t, err)
		all, err := r.Candidates(soon(t))
		check(t, err)
		if got := all[0].Metadata; got["deep"] != `{"a": [1, "x"]}` || got["number"] != "7" || got["null"] != "" {
			t.Errorf("the metadata is %v", got)
		}
	})
}

// The privileges that docs/observing.md grants suffice.
func TestTheDocumentedPrivilegesSuffice(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema, role := s.schema(t), s.role(t, nil)
		owner := rosterOn(t, s.admin, schema)
		pool := d.open(t, 0, s.DSN(pgcluster.ForRole(role)))
		r, err := roster.New(pool, roster.WithSchema(schema))
		check(t, err)
		t.Cleanup(func() { _ = r.Close(soon(t)) })
		wraps(t, r.Migrate(soon(t)), roster.ErrNoPrivilege)
		_, err = r.Candidates(soon(t))
		wraps(t, err, roster.ErrNoPrivilege)
		grants := strings.NewReplacer("pgelector", quoted(schema), "orders_service", quoted(role))
		for _, grant := range documentedGrants(t, "orders_service") {
			_, err = s.admin.Exec(grants.Replace(grant))
			check(t, err)
		}
		expect(t, r.Migrate(soon(t)))
		e := publishTerm(r, "one", 7)
		written(t, r)
		r.OnDemoted(context.Background(), hooks.Demoted{Origin: e.Origin, Token: 7, Reason: hooks.Resigned, At: time.Now()})
		eventually(t, "the end is recorded", func() bool { return terms(t, owner, 1)[0].Reason == string(hooks.Resigned) })
		_, err = r.CleanUp(soon(t))
		expect(t, err)
		expect(t, r.Close(soon(t)))
		if state := states(t, owner, 1)["one"]; state != roster.Left {
			t.Errorf("the candidate is %s, want left", state)
		}

		reader := s.role(t, nil)
		for _, grant := range documentedGrants(t, "admin_page") {
			_, err = s.admin.Exec(strings.NewReplacer("pgelector", quoted(schema), "admin_page", quoted(reader)).Replace(grant))
			check(t, err)
		}
		reading, err := roster.New(d.open(t, 0, s.DSN(pgcluster.ForRole(reader))), roster.WithSchema(schema))
		check(t, err)
		if len(terms(t, reading, 1)) != 1 || len(states(t, reading, 1)) != 1 {
			t.Error("a role with read privileges reads nothing")
		}
		_, err = reading.CleanUp(soon(t))
		wraps(t, err, roster.ErrNoPrivilege)
	})
}

// The internal tests of package roster that need a server.
func TestMigrations(t *testing.T) {
	t.Parallel()
	command := exec.Command("go", "test", "-count=1", "-v", "-run=Migrat", "./roster")
	command.Dir = ".." // another module
	command.Env = append(os.Environ(), "PGELECTOR_ROSTER_DSN="+onShared(t).DSN())
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestAMigrationThatFails") || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
}
