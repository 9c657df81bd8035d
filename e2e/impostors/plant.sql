-- Fills the schema public with objects that raise an error when used. An unqualified
-- name in a statement selects one of them if public comes before pg_catalog in the
-- search_path, or if its argument types match better. First the script copies everything
-- in pg_catalog. Then, for each relevant name, it adds every pair of relevant types.
SET search_path = pg_catalog;
SET check_function_bodies = off;

CREATE FUNCTION public.impostor() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'impostor'; END $$;

-- Functions with arguments of these types cannot be created.
CREATE TEMPORARY VIEW impossible AS SELECT oid FROM pg_type WHERE typname IN ('any', 'cstring', 'internal', 'trigger', 'event_trigger', 'language_handler',
    'fdw_handler', 'index_am_handler', 'tsm_handler', 'table_am_handler', 'pg_ddl_command', 'void', 'unknown');

-- The relevant types are those that the statements name, and those of the functions and
-- relations that they use.
CREATE TEMPORARY TABLE question AS
    SELECT format_type(t.oid, NULL) AS type, t.oid IN (SELECT to_regtype(name) FROM unnest($types::text[]) AS name) AS named FROM pg_type AS t
    WHERE t.typtype = 'b' AND t.oid IN (
        SELECT to_regtype(name) FROM unnest($types::text[]) AS name
        UNION
        SELECT a.atttypid FROM pg_attribute AS a
        WHERE a.attrelid IN (SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relname = ANY ($names))
            AND a.attnum > 0
        UNION
        SELECT p.prorettype FROM pg_proc AS p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY ($names)
    );

CREATE TEMPORARY TABLE wanted AS
    SELECT p.proname AS name, coalesce(string_agg(format_type(a.type, NULL), ', ' ORDER BY a.n), '') AS arguments
    FROM pg_proc AS p LEFT JOIN LATERAL unnest(p.proargtypes) WITH ORDINALITY AS a(type, n) ON true
    WHERE p.pronamespace = 'pg_catalog'::regnamespace
    GROUP BY p.oid, p.proname HAVING NOT bool_or(coalesce(a.type IN (SELECT oid FROM impossible), false));
INSERT INTO wanted
    SELECT f, q.type FROM unnest($names) AS f, question AS q WHERE EXISTS (SELECT FROM pg_proc AS p WHERE p.proname = f AND p.pronargs > 0)
    UNION
    SELECT f, q.type || ', ' || r.type FROM unnest($names) AS f, question AS q, question AS r
    WHERE q.named AND r.named AND EXISTS (SELECT FROM pg_proc AS p WHERE p.proname = f AND (p.pronargs > 1 OR p.provariadic <> 0));

DO $$
DECLARE w record;
BEGIN
    FOR w IN SELECT DISTINCT name, arguments FROM wanted LOOP
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS boolean LANGUAGE plpgsql AS %L', w.name, w.arguments,
            format('BEGIN RAISE EXCEPTION %L; END', 'impostor ' || w.name));
    END LOOP;
END $$;

-- With two variants of a name without arguments, count(*) selects the aggregate.
DROP FUNCTION IF EXISTS public.count();
CREATE FUNCTION public.impostor_step(boolean) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'impostor'; END $$;
CREATE AGGREGATE public.count(*) (sfunc = public.impostor_step, stype = boolean);

CREATE TEMPORARY TABLE paired AS
    SELECT o.oprname AS name, CASE WHEN o.oprleft <> 0 THEN format_type(o.oprleft, NULL) END AS l, format_type(o.oprright, NULL) AS r
    FROM pg_operator AS o
    WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprright <> 0
        AND o.oprleft NOT IN (SELECT oid FROM impossible) AND o.oprright NOT IN (SELECT oid FROM impossible)
    UNION
    SELECT o, q.type, r.type FROM unnest($operators) AS o, question AS q, question AS r;

DO $$
DECLARE p record;
BEGIN
    FOR p IN SELECT DISTINCT l, r FROM paired LOOP
        EXECUTE format('CREATE FUNCTION public.impostor_pair(%s) RETURNS boolean LANGUAGE plpgsql AS %L', concat_ws(', ', p.l, p.r),
            format('BEGIN RAISE EXCEPTION %L; END', 'impostor of an operator of ' || concat_ws(', ', p.l, p.r)));
    END LOOP;
    FOR p IN SELECT * FROM paired LOOP
        EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = public.impostor_pair, %s RIGHTARG = %s)', p.name, 'LEFTARG = ' || p.l || ',', p.r);
    END LOOP;
END $$;

DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relname = ANY ($names) LOOP
        EXECUTE format('CREATE VIEW public.%I AS SELECT * FROM pg_catalog.%I WHERE public.impostor()', name, name);
    END LOOP;
    FOR name IN SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'r') AND typelem = 0 AND typrelid = 0 LOOP
        EXECUTE format('CREATE DOMAIN public.%I AS pg_catalog.%I CHECK (public.impostor())', name, name);
    END LOOP;
END $$;

GRANT SELECT ON ALL TABLES IN SCHEMA public TO PUBLIC;
