-- name: Holder :one
-- Holder is the session that holds the election's lock. Every role sees application_name,
-- usename and pid. Only the same role or a member of pg_monitor sees client_addr and the
-- start of the session; for others they are empty or 0. Times are in microseconds since 1970,
-- because the text of a timestamp depends on DateStyle. The lease, its scope, since when the
-- session leads and its priority are told by its locks (TryLock, TellPriority), and 0 or false if
-- there are none. A session
-- that is not in pg_stat_activity any more has just ended. renewed_micros is when the session last
-- began or ended a statement, which others than the same role and pg_read_all_stats may not see
-- either, and asked_micros is when that was asked.
--
-- If no session holds the lock exclusively, Holder is whoever keeps it from the candidates all the
-- same, and blocks is the mode: a session that shares it, or a prepared transaction, whose pid is
-- 0, whose owner is usename, and whose identifier, which ROLLBACK PREPARED takes, is prepared.
WITH locks AS MATERIALIZED (
    SELECT l.pid, l.objsubid, l.mode, l.virtualtransaction, l.transactionid, l.classid::bigint AS high, l.objid::bigint AS low
    FROM pg_catalog.pg_locks AS l
    WHERE CASE WHEN l.locktype OPERATOR(pg_catalog.=) 'transactionid' THEN l.pid IS NULL
        ELSE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
            AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
            AND CASE WHEN l.objsubid OPERATOR(pg_catalog.=) 1
                THEN ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
                ELSE l.mode OPERATOR(pg_catalog.=) 'ShareLock' AND l.classid::bigint OPERATOR(pg_catalog.=) ANY ('{318473925, 1530767677, 521961639, 1901988892}'::bigint[])
            END
    END
)
SELECT
    COALESCE(l.pid, 0)::integer AS pid,
    COALESCE(a.application_name, '')::pg_catalog.text AS application_name,
    COALESCE(a.usename, p.owner, '')::pg_catalog.text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::pg_catalog.text AS client_addr,
    COALESCE(extract(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS connected_micros,
    COALESCE(told.lease, 0)::bigint AS lease_millis,
    COALESCE(told.since OPERATOR(pg_catalog.*) 1000000::bigint, 0)::bigint AS since_micros,
    COALESCE(told.inside, false)::boolean AS in_transaction,
    COALESCE(told.priority, 0::bigint)::bit(32)::integer AS priority,
    (CASE WHEN l.pid IS NULL OR l.mode OPERATOR(pg_catalog.<>) 'ExclusiveLock' THEN l.mode ELSE '' END)::pg_catalog.text AS blocks,
    COALESCE(p.gid, '')::pg_catalog.text AS prepared,
    COALESCE(extract(epoch FROM a.state_change) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS renewed_micros,
    (extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS asked_micros
FROM locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
LEFT JOIN (
    SELECT t.pid,
        pg_catalog.max(t.low) FILTER (WHERE t.high OPERATOR(pg_catalog.=) ANY ('{318473925, 1530767677}'::bigint[])) AS lease,
        pg_catalog.max(t.low) FILTER (WHERE t.high OPERATOR(pg_catalog.=) 521961639::bigint) AS since,
        pg_catalog.max(t.low) FILTER (WHERE t.high OPERATOR(pg_catalog.=) 1901988892::bigint) AS priority,
        pg_catalog.bool_or(t.high OPERATOR(pg_catalog.=) 1530767677::bigint) AS inside
    FROM locks AS t
    WHERE t.objsubid OPERATOR(pg_catalog.=) 2
    GROUP BY t.pid
) AS told ON told.pid OPERATOR(pg_catalog.=) l.pid
LEFT JOIN LATERAL (
    SELECT x.gid, x.owner FROM locks AS t
    JOIN pg_catalog.pg_prepared_xacts AS x ON x.transaction OPERATOR(pg_catalog.=) t.transactionid
    WHERE l.pid IS NULL AND t.pid IS NULL AND t.virtualtransaction OPERATOR(pg_catalog.=) l.virtualtransaction
) AS p ON true
WHERE l.objsubid OPERATOR(pg_catalog.=) 1 AND (a.pid IS NOT NULL OR p.gid IS NOT NULL)
ORDER BY l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' DESC, l.pid
LIMIT 1;

-- name: Deputies :many
-- Deputies are the sessions, without the leader's, that hold a seat of the election or wait
-- for its lock: those with a seat first, then the waiters in order, a thousand at most. The
-- lowest bit of seat does not matter.
SELECT
    l.pid::integer AS pid,
    COALESCE(a.application_name, '')::pg_catalog.text AS application_name,
    COALESCE(a.usename, '')::pg_catalog.text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::pg_catalog.text AS client_addr,
    COALESCE(extract(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS connected_micros,
    pg_catalog.bool_or(l.objsubid OPERATOR(pg_catalog.=) 2)::boolean AS seated,
    COALESCE(extract(epoch FROM pg_catalog.max(l.waitstart)) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS waiting_micros
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
    AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    AND CASE WHEN l.objsubid OPERATOR(pg_catalog.=) 1
        THEN ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
        ELSE l.granted AND (((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.|) 1::bigint) OPERATOR(pg_catalog.=) (sqlc.arg(seat)::bigint OPERATOR(pg_catalog.|) 1::bigint)
    END
GROUP BY l.pid, a.application_name, a.usename, a.client_addr, a.backend_start
HAVING NOT pg_catalog.bool_or(l.granted AND l.objsubid OPERATOR(pg_catalog.=) 1)
ORDER BY seated DESC, pg_catalog.max(l.waitstart) NULLS LAST, l.pid
LIMIT 1000;

-- name: TakenLocks :many
-- TakenLocks lists those of the keys, a JSON array of integers as text, whose lock somebody
-- holds exclusively. It takes each lock that is free in share mode, and lets it go at once: a
-- client that freezes in the transaction keeps none. So it reads no row of pg_locks, and costs
-- the same however many locks the server holds.
SELECT k.key::bigint AS key
FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS k(key)
WHERE NOT CASE WHEN pg_catalog.pg_try_advisory_lock_shared(k.key::bigint) THEN pg_catalog.pg_advisory_unlock_shared(k.key::bigint) ELSE false END;
