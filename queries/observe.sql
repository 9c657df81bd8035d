-- name: Holder :one
-- Holder is the session that holds the election's lock. application_name,
-- usename and pid can be seen by every role; client_addr and backend_start only
-- by the same role or a member of pg_monitor, and are empty or null otherwise.
SELECT
    l.pid::integer AS pid,
    COALESCE(a.application_name, '')::text AS application_name,
    COALESCE(a.usename, '')::text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::text AS client_addr,
    a.backend_start
FROM pg_catalog.pg_locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock' AND l.objsubid = 1
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
    AND ((l.classid::bigint << 32) | l.objid::bigint) = sqlc.arg(key)::bigint;

-- name: Waiters :many
-- Waiters are the sessions parked in the server for the election's lock, the
-- longest waiting first.
SELECT
    l.pid::integer AS pid,
    COALESCE(a.application_name, '')::text AS application_name,
    COALESCE(a.usename, '')::text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::text AS client_addr,
    a.backend_start,
    l.waitstart
FROM pg_catalog.pg_locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND NOT l.granted AND l.mode = 'ExclusiveLock' AND l.objsubid = 1
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
    AND ((l.classid::bigint << 32) | l.objid::bigint) = sqlc.arg(key)::bigint
ORDER BY l.waitstart NULLS LAST, l.pid;
