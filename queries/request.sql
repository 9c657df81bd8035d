-- name: Ring :one
-- Ring makes a request to a leader, in a transaction of the one who asks: it shares the
-- request's lock, and then the bell of the leader's session, which that session's next Ping
-- finds. Both end with the transaction. rung is false if a Ping was looking at this moment.
-- The two integers of a bell are a constant (session.Bell) and the backend's process id.
SELECT CASE
    WHEN NOT pg_catalog.pg_try_advisory_xact_lock_shared(sqlc.arg(request_high)::integer, sqlc.arg(request_low)::integer) THEN false
    ELSE pg_catalog.pg_try_advisory_xact_lock_shared(983268819, sqlc.arg(pid)::integer)
END::boolean AS rung;

-- name: Requests :many
-- Requests are the requests of those who ring the bell of the session with that pid: the key of each lock that
-- they share in the key space of two integers. transaction identifies a request. Every role
-- sees application_name, usename and pid; client_addr is empty for most others.
SELECT
    l.virtualtransaction::pg_catalog.text AS transaction,
    ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint)::bigint AS key,
    l.pid::integer AS pid,
    COALESCE(a.application_name, '')::pg_catalog.text AS application_name,
    COALESCE(a.usename, '')::pg_catalog.text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::pg_catalog.text AS client_addr
FROM pg_catalog.pg_locks AS bell
JOIN pg_catalog.pg_locks AS l ON l.virtualtransaction OPERATOR(pg_catalog.=) bell.virtualtransaction
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
WHERE bell.locktype OPERATOR(pg_catalog.=) 'advisory' AND bell.granted AND bell.mode OPERATOR(pg_catalog.=) 'ShareLock' AND bell.objsubid OPERATOR(pg_catalog.=) 2
    AND bell.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    AND bell.classid::bigint OPERATOR(pg_catalog.=) 983268819::bigint AND bell.objid::bigint OPERATOR(pg_catalog.=) sqlc.arg(pid)::bigint
    AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ShareLock' AND l.objsubid OPERATOR(pg_catalog.=) 2
    AND l.database OPERATOR(pg_catalog.=) bell.database AND l.classid::bigint OPERATOR(pg_catalog.<>) 983268819::bigint;
