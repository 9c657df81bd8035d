-- name: Ping :one
-- Ping proves that the session lives, and restarts the server's idle timer. A
-- pid other than before means that a pooler moved us to another backend;
-- in_recovery means that the server was demoted under us.
SELECT pg_catalog.pg_backend_pid()::integer AS pid, pg_catalog.pg_is_in_recovery()::boolean AS in_recovery;

-- name: EvictHolder :many
-- EvictHolder ends the backend of that process id if it holds the lock: one that
-- a pooler has shared with others, and on which our lock would stay.
SELECT pg_catalog.pg_terminate_backend(l.pid)::boolean AS signalled
FROM pg_catalog.pg_locks AS l
WHERE l.pid = sqlc.arg(pid)::integer AND l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock' AND l.objsubid = 1
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
    AND ((l.classid::bigint << 32) | l.objid::bigint) = sqlc.arg(key)::bigint;

-- name: DescribeServer :one
-- DescribeServer tells what must be known before the first attempt.
SELECT
    pg_catalog.pg_backend_pid()::integer AS pid,
    pg_catalog.pg_is_in_recovery()::boolean AS in_recovery,
    pg_catalog.current_setting('server_version_num')::integer AS version_num,
    pg_catalog.version()::text AS version,
    (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS asked;

-- name: Witness :one
-- Witness tells which backend answers, and when another backend's last statement
-- was asked, in microseconds since 1970; 0 if the server does not say.
SELECT
    pg_catalog.pg_backend_pid()::integer AS pid,
    COALESCE((
        SELECT (extract(epoch FROM a.query_start) * 1000000)::bigint
        FROM pg_catalog.pg_stat_activity AS a WHERE a.pid = sqlc.arg(pid)::integer
    ), 0)::bigint AS asked;

-- name: ApplySettings :one
-- ApplySettings sets the session's parameters from a JSON array of objects
-- with name and value, for this transaction only if only_local. Parameters
-- that this version of the server does not know are skipped; the count is of
-- those that were set.
SELECT count(pg_catalog.set_config(s.name, s.value, sqlc.arg(only_local)::boolean))
FROM pg_catalog.json_to_recordset(sqlc.arg(settings)::text::json) AS s(name text, value text)
WHERE pg_catalog.current_setting(s.name, true) IS NOT NULL;
