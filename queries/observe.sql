-- name: Holder :one
-- Holder is the session that holds the election's lock. Every role sees application_name,
-- usename and pid. Only the same role or a member of pg_monitor sees client_addr and the
-- start of the session; for others they are empty or 0. Times are in microseconds since 1970,
-- because the text of a timestamp depends on DateStyle.
SELECT
    l.pid::integer AS pid,
    COALESCE(a.application_name, '')::pg_catalog.text AS application_name,
    COALESCE(a.usename, '')::pg_catalog.text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::pg_catalog.text AS client_addr,
    COALESCE(extract(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS connected_micros
FROM pg_catalog.pg_locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
    AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint;

-- name: Waiters :many
-- Waiters are the sessions that wait in the server for the election's lock, in order.
SELECT
    l.pid::integer AS pid,
    COALESCE(a.application_name, '')::pg_catalog.text AS application_name,
    COALESCE(a.usename, '')::pg_catalog.text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::pg_catalog.text AS client_addr,
    COALESCE(extract(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS connected_micros,
    COALESCE(extract(epoch FROM l.waitstart) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS waiting_micros
FROM pg_catalog.pg_locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND NOT l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
    AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
ORDER BY l.waitstart NULLS LAST, l.pid;
