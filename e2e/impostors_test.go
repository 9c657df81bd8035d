//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	pgxdriver "github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/e2e/impostors"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/ticks"
)

// paths are search_paths: PostgreSQL's default, and one with pg_catalog last.
var paths = map[string]string{"default": `"$user", public`, "public first": "public, pg_catalog"}

// beset is a town whose schema public is full of impostors: objects that raise an error if
// an unqualified name selects them.
func beset(t *testing.T) town {
	t.Helper()
	primary := on(t, own(t))
	primary.replicate(t, "FIRST 1 (s1)", "s1") // for synchronous candidates
	w := invaded(t, primary)
	w.admin = pgx.open(t, 0, w.DSN(pgcluster.ForDatabase(w.database), pgcluster.WithParam("search_path", "pg_catalog")))
	statements, err := impostors.Statements("..")
	check(t, err)
	conn, err := pgxdriver.Connect(soon(t), w.DSN(pgcluster.ForDatabase(w.database)))
	check(t, err)
	defer conn.Close(context.Background())
	n, err := impostors.Plant(context.Background(), conn, statements)
	check(t, err)
	if n < 10_000 {
		t.Errorf("there are %d impostors, want tens of thousands", n)
	}
	return w
}

// along returns the address for a new role with that search_path, which may create tables and
// schemas.
func (w town) along(t *testing.T, path string) (dsn string) {
	t.Helper()
	role := w.role(t, map[string]string{})
	_, err := w.admin.Exec(`ALTER ROLE "` + role + `" SET search_path = ` + path + `; GRANT CREATE ON DATABASE "` + w.database + `" TO "` + role + `"; GRANT CREATE ON SCHEMA public TO "` + role + `"`)
	check(t, err)
	t.Cleanup(func() {
		_, err := w.admin.Exec(`DROP OWNED BY "` + role + `"`)
		expect(t, err)
	})
	return w.dsn(role)
}

// unqualified are statements that use an impostor, each in a different way.
var unqualified = []string{
	"SELECT count(pg_catalog.set_config('a.b', 'c', true))", "SELECT count(*)", "SELECT 1 = 1", "SELECT 1::bigint * '1 second'::interval",
	"SELECT extract(epoch FROM pg_catalog.now()) * 1000000", "SELECT 1 IN (1)", "SELECT 1 IN (SELECT 1)", "SELECT 1 BETWEEN 0 AND 2", "SELECT 'a' LIKE 'b'",
	"SELECT 'a'::pg_catalog.text || 'b'", "SELECT NULLIF(1, 2)", "SELECT 1 IS DISTINCT FROM 2", "SELECT CASE 1 WHEN 2 THEN 3 END", "SELECT 1 = ANY (ARRAY[1])",
	"SELECT 1::bigint << 32", "SELECT 1::bigint | 2::bigint", "SELECT (1, 2) = (1, 2)", "SELECT FROM pg_catalog.pg_database AS a JOIN pg_catalog.pg_database AS b USING (oid)",
	"SELECT 'a'::text", "SELECT '[]'::jsonb", "SELECT 1::oid", "SELECT left('abc'::pg_catalog.text, 1)", "SELECT encode('a'::pg_catalog.bytea, 'hex')", "SELECT now()",
	"SELECT pg_try_advisory_lock(1)", "SELECT current_setting('a', true)", "SELECT FROM pg_locks", "SELECT lag(1) OVER ()", "SELECT row_number() OVER ()",
	"SELECT pg_catalog.max(1 + 1)", "SELECT - 1::bigint", "DO $$ BEGIN PERFORM pg_sleep(0); END $$", "DO $$ BEGIN IF 1 > 2 THEN NULL; END IF; END $$",
}

func TestImpostorsInTheSearchPathAreNotCalled(t *testing.T) {
	t.Parallel()
	w := beset(t)
	t.Run("except by unqualified statements", w.unqualifiedStatementsCallImpostors)
	t.Run("by any branch of a statement", w.noStatementDependsOnAnImpostor)
	t.Run("by candidates", w.noCandidateCallsAnImpostor)
	log, err := w.ServerLog()
	check(t, err)
	_, log, _ = strings.Cut(log, candidatesCome)
	if i := strings.Index(log, "impostor"); i >= 0 {
		t.Errorf("the server's log names an impostor: %s", log[i:min(i+500, len(log))])
	}
}

func (w town) unqualifiedStatementsCallImpostors(t *testing.T) {
	pool := pgx.open(t, 0, w.along(t, paths["public first"]))
	for _, statement := range unqualified {
		if _, err := pool.Exec(statement); err == nil {
			t.Errorf("no impostor is called by %s", statement)
		}
	}
	open := pgx.open(t, 0, w.along(t, paths["default"]))
	if _, err := open.Exec(unqualified[0]); err == nil {
		t.Errorf("with the default search_path no impostor is called by %s", unqualified[0])
	}
}

// An SQL function depends on everything that its statement may call, also in branches that
// are not taken. pg_depend shows these dependencies.
func (w town) noStatementDependsOnAnImpostor(t *testing.T) {
	statements, err := impostors.Statements("..")
	check(t, err)
	for name, path := range paths {
		dsn := w.along(t, path)
		schema := w.schema(t)
		rosterOn(t, pgx.open(t, 0, dsn), schema)
		ticksOf, err := ticks.New(pgx.open(t, 0, dsn), "job", every(time.Hour), none, ticks.WithSchema(schema))
		check(t, err)
		check(t, ticksOf.Migrate(soon(t)))
		conn, err := pgxdriver.Connect(soon(t), dsn)
		check(t, err)
		defer conn.Close(context.Background())
		probed := 0
		for _, statement := range append(statements, "SELECT 1::bigint * '1 second'::interval") {
			if !strings.Contains(statement, "SELECT") || strings.Contains(statement, "CREATE TABLE") || strings.Contains(statement, "DO $$") {
				continue
			}
			met := w.dependsOn(t, conn, strings.ReplaceAll(statement, "chosen.", quoted(schema)+"."))
			fromLibrary := strings.HasPrefix(statement, "-- name:")
			if (len(met) > 0) == fromLibrary {
				t.Errorf("%s: %v is called by %s", name, met, statement)
			}
			probed++
		}
		if probed < 40 {
			t.Errorf("only %d statements were checked", probed)
		}
	}
}

// dependsOn returns the objects in the schema public that a statement would use.
func (w town) dependsOn(t *testing.T, conn *pgxdriver.Conn, statement string) []string {
	t.Helper()
	prepared, err := conn.Prepare(soon(t), "", statement)
	if err != nil {
		return []string{err.Error()} // an impostor with another result type
	}
	var types []string
	for _, oid := range prepared.ParamOIDs {
		types = append(types, one[string](t, w.admin, "SELECT 'pg_catalog.' || typname FROM pg_type WHERE oid = $1", oid))
	}
	returns := "SETOF record"
	if len(prepared.Fields) == 0 {
		returns = "void"
	}
	name := strings.ReplaceAll(unique("probe"), "-", "_")
	_, err = conn.Exec(soon(t), "CREATE FUNCTION public."+name+"("+strings.Join(types, ", ")+") RETURNS "+returns+" LANGUAGE sql BEGIN ATOMIC\n"+statement+";\nEND", pgxdriver.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatalf("%v: %s", err, statement)
	}
	return list[string](t, w.admin, `SELECT o.identity FROM pg_depend AS d, pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid) AS o
		WHERE d.classid = 'pg_proc'::regclass AND d.objid = (SELECT oid FROM pg_proc WHERE proname = $1) AND o.schema = 'public'`, name)
}

// An election's sessions set their own search_path. All other statements rely on qualified
// names.
func (w town) noCandidateCallsAnImpostor(t *testing.T) {
	_, err := w.admin.Exec("DO $$ BEGIN RAISE LOG '" + candidatesCome + "'; END $$")
	check(t, err)
	for name, path := range paths {
		dsn := w.along(t, path)
		_, err := pgx.open(t, 0, dsn).Exec(fence.CreateTable)
		check(t, err)
		_, err = w.admin.Exec("GRANT ALL ON public.fence TO PUBLIC")
		check(t, err)
		overDrivers(t, func(t *testing.T, d drivers) {
			for kind, scene := range map[string]func(t *testing.T, w town, d drivers, dsn string){
				"polling": amongWith(elector.WithTakeover(elector.Poll)), "deputy": amongWith(elector.WithTakeover(elector.Deputy)),
				"waiting": amongWith(elector.WithTakeover(elector.Wait)), "on a session": sharesAmong, "seen": seenAmong,
				"notified": among(notified), "synchronous": synchronousAmong, "ticking": ticksAmong,
				"healthy": amongWith(elector.WithHealth(func(context.Context) elector.HealthReport { return elector.HealthReport{Score: 1} }, elector.HealthPolicy{Interval: heartbeat})),
			} {
				t.Run(name+"/"+kind, func(t *testing.T) { scene(t, w, d, dsn) })
			}
		})
	}
}

// ticksAmong does ticks, of which one fails and one is given up.
func ticksAmong(t *testing.T, w town, d drivers, dsn string) {
	pool := d.open(t, 0, dsn)
	events := make(chan ticks.Event, 1000)
	k, err := ticks.New(pool, "job", every(100*time.Millisecond), func(context.Context, *sql.Tx, time.Time) error {
		if len(events) < 3 {
			return errNotToday
		}
		return nil
	}, ticks.WithSchema(w.schema(t)), ticks.WithPause(time.Millisecond, time.Millisecond), ticks.WithGiveUp(2, time.Hour), ticks.WithOnEvent(func(e ticks.Event) { events <- e }))
	check(t, err)
	check(t, k.Migrate(soon(t)))
	c := w.stand(t, pool, w.election(t)).run(t, k.Lead)
	eventually(t, "ticks are done", func() bool { return k.Stats().Done > 2 })
	c.end(t)
	unhurt(t, c)
	for len(events) > 0 {
		if e := <-events; e.Kind == ticks.Trouble || e.Err != nil && !strings.Contains(e.Err.Error(), errNotToday.Error()) {
			t.Errorf("%s: %v", e.Kind, e.Err)
		}
	}
}

// synchronousAmong waits out the lease after each election.
func synchronousAmong(t *testing.T, w town, d drivers, dsn string) {
	inSessionScope(t, "WithSynchronousStandby is refused")
	const length = 10 * time.Second
	among(func(*testing.T, drivers, int, string) elector.Option { return elector.WithSynchronousStandby(length) }, elector.WithLease(length))(t, w, d, dsn)
}

// candidatesCome marks the server's log.
const candidatesCome = "the candidates start here"

// unhurt checks that no failure is the error of an impostor. (A busy machine may cause
// other failures.)
func unhurt(t *testing.T, all ...*candidate) {
	t.Helper()
	for _, c := range all {
		for _, f := range c.rec.Failures() { // SQLSTATEs of a raised exception or of an unknown name
			if state := stateOf(f.Err); strings.HasPrefix(state, "P0") || strings.HasPrefix(state, "42") {
				t.Errorf("%s: %v", f.Op, f.Err)
			}
		}
	}
}

// handsOver uses the first candidate's term in every way, and then transfers leadership to
// the second.
func handsOver(t *testing.T, first, second *candidate) {
	t.Helper()
	first.elected(t)
	second.follows(t)
	term := termOf(t, first)
	expect(t, term.Verify(soon(t)))
	path := one[string](t, first.pool, "SHOW search_path")
	expect(t, term.InTx(soon(t), first.pool, nil, func(tx *sql.Tx) error {
		if inside := one[string](t, tx, "SHOW search_path"); inside != path {
			t.Errorf("the search_path of a fenced transaction is %q, want that of its pool, %q", inside, path)
		}
		return nil
	}))
	_, err := first.RunIfLeader(soon(t), func(context.Context) error { return nil })
	expect(t, err)
	if leader, err := second.Leader(soon(t)); err != nil || leader.CandidateID != first.CandidateID() {
		t.Errorf("the leader is %+v, %v", leader, err)
	}
	_, err = second.Candidates(soon(t))
	expect(t, err)
	for _, err := range second.Observe(soon(t)) {
		expect(t, err)
		break
	}
	elected := second.rec.Cursor()
	_, err = transferred(t, term, second, first)
	expect(t, err)
	if e := nextElected(t, elected); e.Token <= term.Token() {
		t.Errorf("token %d does not rise above %d", e.Token, term.Token())
	}
	second.end(t)
	first.elected(t)
	first.end(t)
	unhurt(t, first, second)
}

// among is a scene of two candidates with the option that opts returns for each.
func among(opt func(t *testing.T, d drivers, i int, dsn string) elector.Option, opts ...elector.Option) func(t *testing.T, w town, d drivers, dsn string) {
	return func(t *testing.T, w town, d drivers, dsn string) {
		election := w.election(t)
		first := w.stand(t, d.open(t, 0, dsn), election, append(opts, opt(t, d, 0, dsn))...).run(t, nil)
		first.elected(t)
		second := w.stand(t, d.open(t, 1, dsn), election, append(opts, opt(t, d, 1, dsn))...).run(t, nil)
		if second.Settings().Takeover == elector.Wait {
			w.waits(t, second)
		}
		handsOver(t, first, second)
	}
}

// amongWith is a scene of two candidates with that option.
func amongWith(opt elector.Option) func(t *testing.T, w town, d drivers, dsn string) {
	return among(func(*testing.T, drivers, int, string) elector.Option { return opt })
}

func notified(t *testing.T, d drivers, i int, dsn string) elector.Option {
	return elector.WithNotifier(d.notifier(t, i, dsn, nil))
}

func sharesAmong(t *testing.T, w town, d drivers, dsn string) {
	elections := []string{w.election(t), w.election(t)}
	var all [2]*candidate
	for i := range all {
		pool := d.open(t, i, dsn)
		g := w.share(t, pool)
		rec := hookstest.NewRecorder()
		g.join(t, elections[:1], elector.WithHooks(rec))
		g.join(t, elections[1:])
		all[i] = &candidate{Elector: g.all[0], rec: rec, pool: pool}
		for _, e := range g.all {
			c := all[i]
			if e != c.Elector {
				c = &candidate{Elector: e, rec: hookstest.NewRecorder(), pool: pool}
			}
			c.run(t, nil)
		}
		if i == 0 {
			all[0].elected(t)
		}
	}
	handsOver(t, all[0], all[1])
}

// seenAmong uses the roster, the dashboard, health and fence.
func seenAmong(t *testing.T, w town, d drivers, dsn string) {
	pool := d.open(t, 0, dsn)
	r := rosterOn(t, pool, w.schema(t))
	m, err := health.New(pool)
	check(t, err)
	c := w.stand(t, pool, w.election(t), elector.WithHooks(r, m)).run(t, nil)
	check(t, m.Add(c.Elector))
	c.elected(t)
	written(t, r)
	eventually(t, "the term is recorded", func() bool { return len(terms(t, r, c.Key())) == 1 })
	if states(t, r, c.Key())[c.CandidateID()] != roster.Live {
		t.Errorf("the candidates are %v", states(t, r, c.Key()))
	}
	_, err = r.CleanUp(soon(t))
	expect(t, err)
	page, err := dashboard.New(pool, dashboard.WithRoster(r))
	check(t, err)
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	if answer.Code != 200 || !strings.Contains(answer.Body.String(), c.CandidateID()) {
		t.Errorf("the page is %d: %s", answer.Code, answer.Body)
	}
	answer = httptest.NewRecorder()
	m.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	if answer.Code != 200 {
		t.Errorf("health is %d: %s", answer.Code, answer.Body)
	}
	resource := unique("lamp")
	for _, token := range []int64{1, 2} {
		tx, err := pool.BeginTx(soon(t), nil)
		check(t, err)
		expect(t, fence.Advance(soon(t), tx, resource, token))
		expect(t, tx.Commit())
	}
	c.end(t)
	expect(t, r.Close(soon(t)))
	unhurt(t, c)
}
