package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// qualified are statements that do not depend on the search_path.
var qualified = []string{
	"SELECT pg_catalog.count(pg_catalog.set_config(s.name, s.value, false)) IS NOT NULL FROM pg_catalog.json_to_recordset('[]'::pg_catalog.json) AS s(name pg_catalog.text, value pg_catalog.text)",
	"SELECT extract(epoch FROM pg_catalog.now()) OPERATOR(pg_catalog.*) 1000000::numeric",
	"SELECT '1'::bigint, '1'::integer, '1'::boolean, '1'::interval, '1'::bit(64), '1'::double precision, '1'::timestamp with time zone, '{}'::bigint[]",
	"SELECT 1 OPERATOR(pg_catalog.=) ANY ('{1}'::bigint[]), 1 OPERATOR(pg_catalog.=) ANY (SELECT 1), (1, 2) OPERATOR(pg_catalog.=) (1, 2)",
	"SELECT CASE WHEN true THEN 1 END, COALESCE(NULL, 1), GREATEST(1, 2), LEAST(1, 2), current_user, NOT true, 1 IS NULL, true IS NOT FALSE, ARRAY[1], EXISTS (SELECT)",
	"SELECT DISTINCT l.pid FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid GROUP BY l.pid ORDER BY l.pid DESC NULLS LAST LIMIT 1",
	"SELECT pg_catalog.lag(1) OVER w FROM pg_catalog.pg_locks WINDOW w AS (PARTITION BY pid ORDER BY objid)",
	"WITH one AS (SELECT 1 AS n), two AS (SELECT n FROM one) SELECT two.n FROM two, LATERAL (SELECT two.n) AS x UNION SELECT n FROM one",
	"INSERT INTO chosen.roster_terms AS t (key) VALUES (sqlc.arg(key)::bigint) ON CONFLICT (key) DO UPDATE SET key = excluded.key WHERE t.key OPERATOR(pg_catalog.<) excluded.key",
	"WITH old AS (SELECT 1 AS key FROM chosen.roster_terms AS t FOR UPDATE OF t SKIP LOCKED) DELETE FROM chosen.roster_terms AS t USING old WHERE t.key OPERATOR(pg_catalog.=) old.key",
	"ALTER TABLE chosen.t ADD COLUMN a boolean",
	"CREATE TABLE chosen.t (a pg_catalog.text PRIMARY KEY DEFAULT pg_catalog.now() CHECK (a OPERATOR(pg_catalog.=) ''), PRIMARY KEY (a)) WITH (fillfactor = 50); COMMENT ON TABLE chosen.t IS 'x'",
	"DO $$ BEGIN PERFORM pg_catalog.pg_sleep(0.01::double precision); EXCEPTION WHEN query_canceled THEN NULL; END $$",
	"DO $$ DECLARE n integer := pg_catalog.length('a'); r record; BEGIN IF n OPERATOR(pg_catalog.>) 1 THEN n := n OPERATOR(pg_catalog.+) 1; END IF; FOR r IN SELECT l.pid FROM pg_catalog.pg_locks AS l LOOP NULL; END LOOP; END $$",
	"ALTER DATABASE app SET a.b = 1; ALTER ROLE r SET search_path = ''; ALTER SYSTEM SET work_mem = 1; ALTER ROLE r CONNECTION LIMIT 5; GRANT SELECT ON chosen.t TO r",
	"LISTEN pgelector; NOTIFY pgelector; BEGIN; COMMIT; SET search_path = public; SHOW search_path",
}

// open maps statements to their findings. A role that may create objects in a schema of
// the search_path can change what such a statement does.
var open = map[string]string{
	"SELECT count(pg_catalog.set_config('a', 'b', true))": "function count",
	"SELECT public.now()":                                                     "function public.now",
	"SELECT app.pg_catalog.now()":                                             "function app.pg_catalog.now",
	"SELECT left('abc', 1)":                                                   "function left",
	"SELECT lag(1) OVER ()":                                                   "function lag",
	"SELECT FROM json_array_elements('[]')":                                   "function json_array_elements",
	"SELECT 1 FROM ROWS FROM (unnest('{1}'::bigint[]))":                       "function unnest",
	"SELECT pg_catalog.count(a) FILTER (WHERE f(a)) FROM pg_catalog.pg_locks": "function f",
	"CALL f()": "function f",
	"SELECT extract(epoch FROM pg_catalog.now()) * 1000000": "operator *",
	"SELECT 1::bigint * '1 second'::interval":               "operator *",
	"SELECT 1 OPERATOR(public.=) 1":                         "operator public.=",
	"SELECT - 1::bigint":                                    "operator -",
	"SELECT 'x' || 'y'":                                     "operator ||",
	"SELECT 1 = ANY ('{1}'::bigint[])":                      "operator =",
	"SELECT 1 < ALL (SELECT 2)":                             "operator <",
	"SELECT (1, 2) = (1, 2)":                                "operator =",
	"SELECT (1, 2) = (SELECT 1, 2)":                         "operator =",
	"SELECT 1 IN (1, 2)":                                    "IN uses",
	"SELECT 1 NOT IN (1, 2)":                                "IN uses",
	"SELECT 1 IN (SELECT 1)":                                "IN (SELECT …) uses",
	"SELECT 1 NOT IN (SELECT 1)":                            "IN (SELECT …) uses",
	"SELECT 1 BETWEEN 0 AND 2":                              "BETWEEN uses",
	"SELECT 1 NOT BETWEEN 0 AND 2":                          "NOT BETWEEN uses",
	"SELECT 1 BETWEEN SYMMETRIC 0 AND 2":                    "BETWEEN SYMMETRIC uses",
	"SELECT 1 NOT BETWEEN SYMMETRIC 0 AND 2":                "NOT BETWEEN SYMMETRIC uses",
	"SELECT 'a' LIKE 'b'":                                   "LIKE uses",
	"SELECT 'a' NOT ILIKE 'b'":                              "ILIKE uses",
	"SELECT 'a' SIMILAR TO 'b'":                             "SIMILAR TO uses",
	"SELECT 1 IS DISTINCT FROM 2":                           "IS DISTINCT FROM uses",
	"SELECT 1 IS NOT DISTINCT FROM 2":                       "IS NOT DISTINCT FROM uses",
	"SELECT NULLIF(1, 2)":                                   "NULLIF uses",
	"SELECT CASE 1 WHEN 2 THEN 3 END":                       "CASE x WHEN uses",
	"SELECT FROM pg_catalog.pg_locks AS a JOIN pg_catalog.pg_locks AS b USING (pid)": "USING and NATURAL",
	"SELECT FROM pg_catalog.pg_locks AS a NATURAL JOIN pg_catalog.pg_locks AS b":     "USING and NATURAL",
	"SELECT 1 ORDER BY 1 USING <": "operator <",
	"SELECT 1::text":              "type text",
	"SELECT CAST(1 AS oid)":       "type oid",
	"SELECT json '[]'":            "type json",
	"SELECT '{a}'::text[]":        "type text",
	"SELECT 1::public.int4":       "type public.int4",
	"SELECT FROM pg_catalog.json_to_recordset('[]') AS s(name text)": "type text",
	"SELECT XMLSERIALIZE(CONTENT '' AS text)":                        "XmlSerialize",
	"SELECT 'a' COLLATE \"C\"":                                       "collation C",
	"SELECT FROM pg_locks":                                           "relation pg_locks",
	"SELECT FROM public.pg_locks":                                    "relation public.pg_locks",
	"SELECT FROM pg_catalog.pg_locks TABLESAMPLE system (1)":         "function system",
	"TABLE pg_locks":                                                 "relation pg_locks",
	"UPDATE t SET a = 1":                                             "relation t",
	"WITH t AS (SELECT 1) INSERT INTO u SELECT FROM t":               "relation u",
	// These are outside the scope of the common table expression.
	"SELECT FROM (WITH t AS (SELECT 1) SELECT FROM t) AS x, t":                        "relation t",
	"WITH one AS (SELECT FROM two), two AS (SELECT 1) SELECT FROM one":                "relation two",
	"ALTER TABLE chosen.t ADD COLUMN a text":                                          "type text",
	"ALTER TABLE t ADD COLUMN a boolean":                                              "t",
	"ALTER TABLE chosen.t DROP COLUMN a":                                              "AT_DropColumn",
	"CREATE TABLE chosen.t (a text)":                                                  "type text",
	"CREATE TABLE chosen.t (a bigint DEFAULT f())":                                    "function f",
	"CREATE TABLE chosen.t (a bigint CHECK (a > 0))":                                  "operator >",
	"CREATE TABLE chosen.t (a serial)":                                                "type serial",
	"CREATE INDEX ON chosen.t (a text_ops)":                                           "IndexStmt",
	"CREATE FUNCTION chosen.f() RETURNS void LANGUAGE sql AS ''":                      "CreateFunctionStmt",
	"REVOKE EXECUTE ON FUNCTION f(text) FROM PUBLIC":                                  "function f",
	"SELECT 1; SELECT now()":                                                          "function now",
	"DO $$ BEGIN PERFORM pg_sleep(1); END $$":                                         "function pg_sleep",
	"DO $$ BEGIN IF 1 = 1 THEN NULL; END IF; END $$":                                  "operator =",
	"DO $$ DECLARE t text; BEGIN NULL; END $$":                                        "type text",
	"DO $$ DECLARE n integer := f(1); BEGIN NULL; END $$":                             "function f",
	"DO $$ DECLARE n integer; BEGIN n := n + 1; END $$":                               "operator +",
	"DO $$ DECLARE n integer[]; BEGIN n[f(1)] := 2; END $$":                           "function f",
	"DO $$ BEGIN CASE 1 WHEN 2 THEN NULL; END CASE; END $$":                           "IN uses",
	"DO $$ DECLARE r record; BEGIN FOR r IN SELECT now() LOOP NULL; END LOOP; END $$": "function now",
	"DO $$ BEGIN EXECUTE 'SELECT now()'; END $$":                                      "EXECUTE",
	"DO $$ BEGIN RAISE NOTICE '%', now(); END $$":                                     "function now",
	"DO LANGUAGE plperl $$ 1; $$":                                                     "language plperl",
}

func TestQualifiedStatementsPass(t *testing.T) {
	for _, text := range qualified {
		if findings, err := Statements(text); err != nil || len(findings) > 0 {
			t.Errorf("%s\n\tgot %v, %v", text, findings, err)
		}
	}
}

func TestWhatTheSearchPathDecidesIsFound(t *testing.T) {
	for text, want := range open {
		findings, err := Statements(text)
		if err != nil || !slices.ContainsFunc(findings, func(f Finding) bool { return strings.Contains(f.What, want) }) {
			t.Errorf("%s\n\tgot %v, %v; want %q", text, findings, err, want)
		}
	}
}

func TestTheStatementsOfGoCodeAreFound(t *testing.T) {
	for code, want := range map[string]string{
		"const q = `SELECT now()`":                                             "4: the function now",
		"const q = `-- name: Clock :one\n-- It is.\nSELECT\n\tnow()`":          "7: the function now",
		"var f = do(\"select now()\")":                                         "4: the function now",
		"var f = do(\"SELECT \" + \"now()\")":                                  "4: the function now",
		"var f = do(\"SELECT now() FROM \" + quote(name) + \".t\")":            "4: the function now",
		"var f = do(fmt.Sprintf(\"SELECT %s, now()\", x))":                     "4: the function now",
		"var f = do(\"CREATE TABLE chosen.\" + x + \" (a \" + y + \" text)\")": "4: cannot parse and check",
		"var f = do(\"SELECT \" + (fields) + \" FROM\")":                       "4: cannot parse and check",
		"var f = do(`INSERT INTO t (a) VALUES ('` + x + `')`)":                 "4: the relation t",
	} {
		_, findings, err := goFile("package p\n\nimport \"fmt\"\n" + code + "\n")
		if err != nil || len(findings) == 0 || !strings.HasPrefix(string(rune('0'+findings[0].At))+": "+findings[0].What, want) {
			t.Errorf("%s\n\tgot %v, %v; want %q", code, findings, err, want)
		}
	}
	for _, code := range []string{
		"const q = `SELECT pg_catalog.now()`", "var s = \"select one of these\"", "var s = \"the SELECT that failed\"", "var s = \"with \" + what",
		"var f = do(\"LISTEN \" + quote(channel))", "const probe = \"NOTIFY\"", "var f = do(\"CREATE SCHEMA \" + quote(name))", "import _ \"table\"",
		"var f = \"SELECT pg_catalog.concat(\" + quote(name) + \", 'UTF8')\"",
	} {
		if _, findings, err := goFile("package p\n" + code + "\n"); err != nil || len(findings) > 0 {
			t.Errorf("%s\n\tgot %v, %v", code, findings, err)
		}
	}
}

func TestTheStatementsOfDocumentsAreFound(t *testing.T) {
	_, findings, err := document("# A\n\n```sql\n\\set a b\nSELECT :'a', now();\n```\n\n```sql\nSET search_path = pg_catalog;\nSELECT now();\n```\n\n```\nSELECT now();\n```\n\n```sql\n-- +goose Up\nSELECT now();\n```\n")
	if err != nil || len(findings) != 1 || findings[0].At != 5 || !strings.HasPrefix(findings[0].What, "the function now") {
		t.Errorf("got %v, %v", findings, err)
	}
	if _, _, err := document("```sql\nSELECT FROM WHERE;\n```\n"); err == nil {
		t.Error("a block that cannot be parsed passes")
	}
}

func TestAllOfTheModuleAndTheCommandIsReadAndNothingOfOthers(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"go.mod": "module m\n", "queries/a.sql": "\nSELECT now();\n", "a/a.go": "package a\n\nconst q = `SELECT now()`\n", "a.md": "```sql\nSELECT now();\n```\n",
		"a/a_test.go": "package a\n\nconst r = `SELECT now()`\n", "other/go.mod": "module o\n", "other/a.go": "package o\n\nconst q = `SELECT now()`\n",
		"cmd/pgelector/go.mod": "module c\n", "cmd/pgelector/c.go": "package c\n\nconst q = `SELECT now()`\n",
		".cache/a.sql": "SELECT now();\n", "a/testdata/a.sql": "SELECT now();\n", "a.txt": "SELECT now()\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	checked, findings, err := repository(root)
	var places []string
	for _, f := range findings {
		place, _, _ := strings.Cut(f, ": ")
		places = append(places, place)
	}
	slices.Sort(places)
	if want := []string{"a.md:2", "a/a.go:3", "cmd/pgelector/c.go:3", "queries/a.sql:2"}; err != nil || checked != 4 || !slices.Equal(places, want) {
		t.Errorf("checked %d, found %v, %v", checked, findings, err)
	}
}
