-- Statements of package ticks. Times are microseconds since 1970, so that neither the session's
-- TimeZone nor the driver's matters. Columns are compared and never returned as timestamps.

-- name: Note :exec
-- Note adds a schedule. Its ticks count from now.
INSERT INTO chosen.ticks_schedules (name, last_at) VALUES (sqlc.arg(name)::pg_catalog.text, pg_catalog.clock_timestamp())
ON CONFLICT (name) DO NOTHING;

-- name: Look :one
-- Look locks a schedule until the transaction ends, and reads the server's time.
SELECT (extract(epoch FROM s.last_at) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS last_micros,
    (extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS now_micros
FROM chosen.ticks_schedules AS s WHERE s.name OPERATOR(pg_catalog.=) sqlc.arg(name)::pg_catalog.text
FOR UPDATE;

-- name: Advance :exec
-- Advance says up to which time the ticks of a schedule are decided.
UPDATE chosen.ticks_schedules AS s
SET last_at = '1970-01-01 00:00:00+00'::timestamp with time zone OPERATOR(pg_catalog.+) (sqlc.arg(last_micros)::bigint::double precision OPERATOR(pg_catalog.*) '1 microsecond'::interval)
WHERE s.name OPERATOR(pg_catalog.=) sqlc.arg(name)::pg_catalog.text;

-- name: Add :exec
-- Add adds ticks, a JSON array of microseconds.
INSERT INTO chosen.ticks_unfinished (name, at)
SELECT sqlc.arg(name)::pg_catalog.text,
    '1970-01-01 00:00:00+00'::timestamp with time zone OPERATOR(pg_catalog.+) (m.micros::bigint::double precision OPERATOR(pg_catalog.*) '1 microsecond'::interval)
FROM pg_catalog.json_array_elements_text(sqlc.arg(micros)::pg_catalog.text::pg_catalog.json) AS m(micros)
ON CONFLICT (name, at) DO NOTHING;

-- name: Unfinished :many
-- Unfinished returns the ticks that are claimed and not done yet, the oldest first.
SELECT (extract(epoch FROM u.at) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS at_micros, u.tries,
    (extract(epoch FROM u.claimed_at) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS claimed_micros,
    (extract(epoch FROM u.try_at) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS try_micros, u.error
FROM chosen.ticks_unfinished AS u WHERE u.name OPERATOR(pg_catalog.=) sqlc.arg(name)::pg_catalog.text
ORDER BY u.at LIMIT sqlc.arg(at_most)::bigint;

-- name: Begin :exec
-- Begin counts a try before the try begins, so that a tick that kills its process is counted, too. If
-- nothing else is heard of the try, the next one begins after the pause.
UPDATE chosen.ticks_unfinished AS u
SET tries = u.tries OPERATOR(pg_catalog.+) 1,
    try_at = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) (sqlc.arg(pause_micros)::bigint::double precision OPERATOR(pg_catalog.*) '1 microsecond'::interval)
WHERE u.name OPERATOR(pg_catalog.=) sqlc.arg(name)::pg_catalog.text
    AND u.at OPERATOR(pg_catalog.=) ('1970-01-01 00:00:00+00'::timestamp with time zone OPERATOR(pg_catalog.+) (sqlc.arg(at_micros)::bigint::double precision OPERATOR(pg_catalog.*) '1 microsecond'::interval));

-- name: Finish :execrows
-- Finish removes a tick, unless another try of the tick has begun since.
DELETE FROM chosen.ticks_unfinished AS u
WHERE u.name OPERATOR(pg_catalog.=) sqlc.arg(name)::pg_catalog.text AND u.tries OPERATOR(pg_catalog.=) sqlc.arg(tries)::integer
    AND u.at OPERATOR(pg_catalog.=) ('1970-01-01 00:00:00+00'::timestamp with time zone OPERATOR(pg_catalog.+) (sqlc.arg(at_micros)::bigint::double precision OPERATOR(pg_catalog.*) '1 microsecond'::interval));

-- name: Fail :exec
-- Fail records why a try failed, and when the next one may begin.
UPDATE chosen.ticks_unfinished AS u
SET error = sqlc.arg(error)::pg_catalog.text,
    try_at = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) (sqlc.arg(pause_micros)::bigint::double precision OPERATOR(pg_catalog.*) '1 microsecond'::interval)
WHERE u.name OPERATOR(pg_catalog.=) sqlc.arg(name)::pg_catalog.text AND u.tries OPERATOR(pg_catalog.=) sqlc.arg(tries)::integer
    AND u.at OPERATOR(pg_catalog.=) ('1970-01-01 00:00:00+00'::timestamp with time zone OPERATOR(pg_catalog.+) (sqlc.arg(at_micros)::bigint::double precision OPERATOR(pg_catalog.*) '1 microsecond'::interval));

-- name: Installed :one
-- Installed reports whether a schema of that name exists, and the tables of ticks in it.
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname OPERATOR(pg_catalog.=) sqlc.arg(schema)::pg_catalog.text)::boolean AS has_schema,
    EXISTS (
        SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
        WHERE n.nspname OPERATOR(pg_catalog.=) sqlc.arg(schema)::pg_catalog.text AND c.relname OPERATOR(pg_catalog.=) 'ticks_migrations'
    )::boolean AS has_ticks;

-- name: Version :one
-- Version is the newest applied migration.
SELECT COALESCE(pg_catalog.max(m.version), 0)::integer AS version FROM chosen.ticks_migrations AS m;

-- name: RecordVersion :exec
-- RecordVersion records that a migration was applied.
INSERT INTO chosen.ticks_migrations (version) VALUES (sqlc.arg(version)::integer);

-- name: LockMigrations :exec
-- LockMigrations lets one process at a time migrate a schema, until its transaction ends. The
-- lock is in the key space of two integers, which no election uses.
SELECT pg_catalog.pg_advisory_xact_lock(sqlc.arg(high)::integer, sqlc.arg(low)::integer);
