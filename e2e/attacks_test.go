//go:build unix

package e2e_test

import (
	"strings"
	"testing"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// opened lets the stranger create objects in the schema public, as every role may on
// PostgreSQL 14, and runs the script as the stranger.
func (w town) opened(t *testing.T, script string) {
	t.Helper()
	if !one[bool](t, w.admin, "SELECT has_schema_privilege($1, 'public', 'CREATE')", w.stranger) {
		_, err := w.admin.Exec("GRANT CREATE ON SCHEMA public TO PUBLIC")
		check(t, err)
	}
	_, err := w.invader(t).Exec(script)
	check(t, err)
}

// Each of these functions matches the argument types of a library statement exactly, so an
// unqualified call would choose it.
const stealingFunctions = `
	SET check_function_bodies = off;
	CREATE TABLE public.loot (secret text);
	GRANT INSERT ON public.loot TO PUBLIC;
	CREATE FUNCTION public.steal() RETURNS void LANGUAGE sql AS 'INSERT INTO public.loot SELECT secret FROM vault.private';
	CREATE FUNCTION public.step(bigint, text) RETURNS bigint LANGUAGE sql AS 'SELECT public.steal(); SELECT $1';
	CREATE FUNCTION public.step(bigint, boolean) RETURNS bigint LANGUAGE sql AS 'SELECT public.steal(); SELECT $1';
	CREATE AGGREGATE public.count(text) (sfunc = public.step, stype = bigint, initcond = '0');
	CREATE AGGREGATE public.count(boolean) (sfunc = public.step, stype = bigint, initcond = '0');
	CREATE FUNCTION public.times(numeric, integer) RETURNS numeric LANGUAGE sql AS 'SELECT public.steal(); SELECT pg_catalog.numeric_mul($1, $2)';
	CREATE FUNCTION public.times(bigint, interval) RETURNS interval LANGUAGE sql AS 'SELECT public.steal(); SELECT pg_catalog.mul_d_interval($1, $2)';
	CREATE OPERATOR public.* (FUNCTION = public.times, LEFTARG = numeric, RIGHTARG = integer);
	CREATE OPERATOR public.* (FUNCTION = public.times, LEFTARG = bigint, RIGHTARG = interval);`

func TestAStrangersFunctionsDoNotRunAsTheCandidates(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		w := invaded(t, onShared(t))
		_, err := w.admin.Exec(`CREATE SCHEMA vault AUTHORIZATION "` + w.elections + `"; CREATE TABLE vault.private AS SELECT 'plans' AS secret; ALTER TABLE vault.private OWNER TO "` + w.elections + `"`)
		check(t, err)
		w.opened(t, stealingFunctions)
		if _, err := pgx.open(t, 0, w.dsn(w.elections)).Exec("SELECT count('x'::text)"); err != nil || one[int](t, w.admin, "SELECT count(*) FROM public.loot") != 1 {
			t.Fatalf("an unqualified statement does not call the stranger's function: %v", err)
		}
		for _, opts := range [][]elector.Option{nil, {elector.WithWatch()}, {elector.WithStandby(elector.Wait)}} {
			first := w.candidate(t, d, opts...)
			first.elected(t)
			handsOver(t, first, w.candidate(t, d, opts...))
		}
		if n := one[int](t, w.admin, "SELECT count(*) FROM public.loot"); n != 1 {
			t.Errorf("the stranger's functions ran %d times", n-1)
		}
		w.defend(t, "create")
		denied(t, w.invader(t), "CREATE FUNCTION public.one() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
	})
}

// lyingOperators returns a script for operators that report everything as equal and
// release the session's locks. With them, any lock of a session would count as the
// election's.
func lyingOperators() string {
	var script strings.Builder
	for types, lie := range map[string]string{"text, text": "$2 IN ('advisory', 'ExclusiveLock') OR pg_catalog.texteq($1, $2)", "smallint, integer": "true", "bigint, bigint": "true"} {
		left, right, _ := strings.Cut(types, ", ")
		script.WriteString(`
			CREATE FUNCTION public.equal(` + types + `) RETURNS boolean LANGUAGE sql SET search_path = pg_catalog AS $$ SELECT pg_advisory_unlock_all(); SELECT ` + lie + ` $$;
			CREATE OPERATOR public.= (FUNCTION = public.equal, LEFTARG = ` + left + `, RIGHTARG = ` + right + `);`)
	}
	return script.String()
}

func TestAStrangersOperatorsMakeNoSecondLeader(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		w := invaded(t, onShared(t))
		_, err := w.admin.Exec(`ALTER ROLE "` + w.elections + `" SET search_path = public, pg_catalog`)
		check(t, err)
		w.opened(t, lyingOperators())
		if !one[bool](t, pgx.open(t, 0, w.dsn(w.elections)), "SELECT 'a'::text = 'advisory'") {
			t.Fatal("an unqualified statement does not call the stranger's operator")
		}
		first := w.candidate(t, d)
		first.elected(t)
		second := w.candidate(t, d)
		next(t, second.rec.Cursor(), func(hooks.Campaign) bool { return true })
		for _, c := range []*candidate{first, second} {
			term, leading := c.Term()
			if leading != (c == first) {
				t.Errorf("%s leads: %t", c.CandidateID(), leading)
			}
			if leading {
				t.Logf("%s leads, and Verify returns %v", c.CandidateID(), term.Verify(soon(t)))
			}
		}
		held := list[int](t, w.admin, "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
		if len(held) != 1 {
			t.Errorf("%v hold the lock, want one", held)
		}
		handsOver(t, first, second)
	})
}
