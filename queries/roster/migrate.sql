-- name: Installed :one
-- Installed reports whether a schema of that name exists, and a roster in it.
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname OPERATOR(pg_catalog.=) sqlc.arg(schema)::pg_catalog.text)::boolean AS has_schema,
    EXISTS (
        SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
        WHERE n.nspname OPERATOR(pg_catalog.=) sqlc.arg(schema)::pg_catalog.text AND c.relname OPERATOR(pg_catalog.=) 'roster_migrations'
    )::boolean AS has_roster;

-- name: Version :one
-- Version is the newest applied migration.
SELECT COALESCE(pg_catalog.max(m.version), 0)::integer AS version FROM chosen.roster_migrations AS m;

-- name: RecordVersion :exec
-- RecordVersion records that a migration was applied.
INSERT INTO chosen.roster_migrations (version) VALUES (sqlc.arg(version)::integer);

-- name: LockMigrations :exec
-- LockMigrations lets one process at a time migrate a schema, until its transaction ends. The
-- lock is in the key space of two integers, which no election uses.
SELECT pg_catalog.pg_advisory_xact_lock(sqlc.arg(high)::integer, sqlc.arg(low)::integer);
