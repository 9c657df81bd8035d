-- name: Ping :one
-- Ping proves that the session lives, and restarts the server's idle timer. A
-- pid other than before means that a pooler moved us to another backend;
-- in_recovery means that the server was demoted under us.
SELECT pg_catalog.pg_backend_pid()::integer AS pid, pg_catalog.pg_is_in_recovery()::boolean AS in_recovery;

-- name: DescribeServer :one
-- DescribeServer tells what must be known before the first attempt.
SELECT
    pg_catalog.pg_backend_pid()::integer AS pid,
    pg_catalog.pg_is_in_recovery()::boolean AS in_recovery,
    pg_catalog.current_setting('server_version_num')::integer AS version_num,
    pg_catalog.version()::text AS version;

-- name: ApplySettings :one
-- ApplySettings sets the session's parameters from a JSON array of objects
-- with name and value, for this transaction only if only_local. Parameters
-- that this version of the server does not know are skipped; the count is of
-- those that were set.
SELECT count(pg_catalog.set_config(s.name, s.value, sqlc.arg(only_local)::boolean))
FROM pg_catalog.json_to_recordset(sqlc.arg(settings)::text::json) AS s(name text, value text)
WHERE pg_catalog.current_setting(s.name, true) IS NOT NULL;
