-- name: AdvisoryLocks :many
-- AdvisoryLocks lists the sessions that hold or wait for an exclusive advisory lock with a
-- 64-bit key in this database, and those that hold a seat of that election: by key, the holder
-- first, then the deputy, then the waiters in order, ten thousand rows at most. keys is a JSON array
-- of integers as text: if it is not empty, only those are listed. The key of the seats is that of
-- seat.Key; its lowest bit does not matter. As in Holder, what this role may not see is
-- empty or 0, and the last columns are those of Holder. last_micros is when the session last
-- began or ended a statement.
--
-- If nobody holds such a lock exclusively, and it is one of keys, or somebody waits for it or holds
-- a seat, those are listed, too, that keep it from the candidates (Holder).
--
-- Others choose how many locks there are. So the parts of an election are put together by sorting,
-- and not by a join whose plan would hang on an estimate. The server reads virtualtransaction separately
-- for each lock, and it changes with each statement. So it is used only for prepared transactions, which
-- have no pid.
WITH every AS MATERIALIZED (
    SELECT l.objsubid, l.granted, l.pid, l.waitstart, l.mode, l.transactionid, l.classid::bigint AS high, l.objid::bigint AS low,
        CASE WHEN l.pid IS NULL THEN l.virtualtransaction END AS prepared_by,
        ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) AS key
    FROM pg_catalog.pg_locks AS l
    WHERE CASE WHEN l.locktype OPERATOR(pg_catalog.=) 'transactionid' THEN l.pid IS NULL
        ELSE l.locktype OPERATOR(pg_catalog.=) 'advisory'
            AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    END
), told AS MATERIALIZED (
    SELECT t.pid,
        pg_catalog.max(t.low) FILTER (WHERE t.high OPERATOR(pg_catalog.=) ANY ('{318473925, 1530767677}'::bigint[])) AS lease,
        pg_catalog.max(t.low) FILTER (WHERE t.high OPERATOR(pg_catalog.=) 521961639::bigint) AS since,
        pg_catalog.max(t.low) FILTER (WHERE t.high OPERATOR(pg_catalog.=) 1901988892::bigint) AS priority,
        pg_catalog.bool_or(t.high OPERATOR(pg_catalog.=) 1530767677::bigint) AS inside
    FROM every AS t
    WHERE t.objsubid OPERATOR(pg_catalog.=) 2 AND t.mode OPERATOR(pg_catalog.=) 'ShareLock' AND t.granted
        AND t.high OPERATOR(pg_catalog.=) ANY ('{318473925, 1530767677, 521961639, 1901988892}'::bigint[])
    GROUP BY t.pid
), parts AS (
    SELECT e.pid, e.prepared_by, e.waitstart, e.mode,
        CASE WHEN e.objsubid OPERATOR(pg_catalog.=) 1 THEN e.key
            ELSE pg_catalog.max(e.key) FILTER (WHERE e.objsubid OPERATOR(pg_catalog.=) 1) OVER (PARTITION BY e.seat) END AS key,
        e.objsubid OPERATOR(pg_catalog.=) 2 AS seated,
        e.objsubid OPERATOR(pg_catalog.=) 1 AND e.granted AND e.pid IS NOT NULL AND e.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AS leads,
        e.objsubid OPERATOR(pg_catalog.=) 1 AND e.granted AND (e.pid IS NULL OR e.mode OPERATOR(pg_catalog.<>) 'ExclusiveLock') AS blocks
    FROM (
        SELECT k.objsubid, k.granted, k.pid, k.waitstart, k.mode, k.prepared_by, k.key,
            CASE WHEN k.objsubid OPERATOR(pg_catalog.=) 2 THEN k.key ELSE pg_catalog.concat('x', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(
                pg_catalog.convert_to('pgelector seat:', 'UTF8') OPERATOR(pg_catalog.||) pg_catalog.int8send(k.key)), 'hex'), 16))::bit(64)::bigint
            END OPERATOR(pg_catalog.|) 1::bigint AS seat
        FROM every AS k
        WHERE CASE
            WHEN k.objsubid OPERATOR(pg_catalog.=) 2 THEN k.granted AND k.pid IS NOT NULL AND k.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
            WHEN k.objsubid OPERATOR(pg_catalog.=) 1 AND (k.granted OR k.mode OPERATOR(pg_catalog.=) 'ExclusiveLock')
            THEN CASE WHEN sqlc.arg(keys)::pg_catalog.text OPERATOR(pg_catalog.=) '[]' THEN true ELSE k.key OPERATOR(pg_catalog.=) ANY (
                SELECT asked.key::bigint FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS asked(key)) END
            ELSE false
        END
    ) AS e
), elections AS (
    SELECT p.key, p.pid, p.prepared_by, p.waitstart, p.mode, p.seated, p.leads, p.blocks,
        pg_catalog.bool_or(p.leads) OVER (PARTITION BY p.key) AS led,
        pg_catalog.bool_or(NOT p.blocks) OVER (PARTITION BY p.key) AS wanted
    FROM parts AS p
    WHERE p.key IS NOT NULL
), listed AS MATERIALIZED (
    SELECT e.key, e.pid, e.prepared_by, pg_catalog.bool_or(e.leads) AS leads,
        pg_catalog.bool_or(e.seated) AND NOT pg_catalog.bool_or(e.leads) AS seated, pg_catalog.max(e.waitstart) AS waitstart,
        pg_catalog.max(e.mode) FILTER (WHERE e.blocks) AS blocks
    FROM elections AS e
    WHERE NOT e.blocks OR NOT e.led AND (e.wanted OR sqlc.arg(keys)::pg_catalog.text OPERATOR(pg_catalog.<>) '[]')
    GROUP BY e.key, e.pid, e.prepared_by
)
SELECT
    p.key::bigint AS key,
    p.leads::boolean AS granted,
    p.seated::boolean AS deputy,
    COALESCE(p.pid, 0)::integer AS pid,
    COALESCE(a.application_name, '')::pg_catalog.text AS application_name,
    COALESCE(a.usename, x.owner, '')::pg_catalog.text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::pg_catalog.text AS client_addr,
    COALESCE(extract(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS connected_micros,
    COALESCE(extract(epoch FROM p.waitstart) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS waiting_micros,
    COALESCE(extract(epoch FROM GREATEST(a.query_start, a.state_change)) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS last_micros,
    COALESCE(told.lease, 0)::bigint AS lease_millis,
    COALESCE(told.since OPERATOR(pg_catalog.*) 1000000::bigint, 0)::bigint AS since_micros,
    COALESCE(told.inside, false)::boolean AS in_transaction,
    COALESCE(told.priority, 0::bigint)::bit(32)::integer AS priority,
    COALESCE(p.blocks, '')::pg_catalog.text AS blocks,
    COALESCE(x.gid, '')::pg_catalog.text AS prepared
FROM listed AS p
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) p.pid
LEFT JOIN told ON told.pid OPERATOR(pg_catalog.=) p.pid
LEFT JOIN LATERAL (
    SELECT g.gid, g.owner
    FROM every AS t
    JOIN pg_catalog.pg_prepared_xacts AS g ON g.transaction OPERATOR(pg_catalog.=) t.transactionid
    WHERE p.pid IS NULL AND t.pid IS NULL AND t.prepared_by OPERATOR(pg_catalog.=) p.prepared_by
) AS x ON true
WHERE a.pid IS NOT NULL OR x.gid IS NOT NULL
ORDER BY p.key, granted DESC, deputy DESC, p.waitstart NULLS LAST, p.pid
LIMIT 10000;

-- name: Clock :one
-- Clock is the server's clock, in microseconds since 1970.
SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS micros;

-- name: Capacity :one
-- Capacity is the use and size of the lock table and of the connection limits. A limit of -1
-- means none. Fast-path locks do not use the lock table. The size is what the manual promises (20.12): the
-- server's own processes, and up to PostgreSQL 18 a tenth more, come on top of it. Without
-- pg_read_all_stats a role does not see backend_type, and other roles' workers are counted as connections.
SELECT
    (pg_catalog.current_setting('max_locks_per_transaction')::bigint
        OPERATOR(pg_catalog.*) (pg_catalog.current_setting('max_connections')::bigint
            OPERATOR(pg_catalog.+) pg_catalog.current_setting('max_prepared_transactions')::bigint))::bigint AS lock_slots,
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks AS l WHERE NOT l.fastpath)::bigint AS locks,
    (pg_catalog.current_setting('max_connections')::bigint
        OPERATOR(pg_catalog.-) pg_catalog.current_setting('superuser_reserved_connections')::bigint
        OPERATOR(pg_catalog.-) COALESCE(pg_catalog.current_setting('reserved_connections', true), '0')::bigint)::bigint AS connection_slots,
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity AS a WHERE COALESCE(a.backend_type, 'client backend') OPERATOR(pg_catalog.=) 'client backend' AND a.datid IS NOT NULL)::bigint AS connections,
    COALESCE((SELECT r.rolconnlimit FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) current_user), -1)::bigint AS role_limit,
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.usename OPERATOR(pg_catalog.=) current_user)::bigint AS role_connections,
    (SELECT d.datconnlimit FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())::bigint AS database_limit,
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())::bigint AS database_connections;

-- name: Privileges :one
-- Privileges are those that operators need. A role must inherit them; before PostgreSQL 15 pg_read_all_stats
-- need not be inherited.
SELECT
    current_user::pg_catalog.text AS role,
    pg_catalog.pg_has_role(current_user, 'pg_read_all_stats',
        CASE WHEN pg_catalog.current_setting('server_version_num')::integer OPERATOR(pg_catalog.<) 150000 THEN 'MEMBER' ELSE 'USAGE' END)::boolean AS reads_stats,
    pg_catalog.pg_has_role(current_user, 'pg_signal_backend', 'USAGE')::boolean AS signals_backends;

-- name: SessionEnders :many
-- SessionEnders are the settings by which the server would end a session or a statement of
-- this connection, without those that are off.
SELECT s.name::pg_catalog.text AS name, pg_catalog.current_setting(s.name)::pg_catalog.text AS value, COALESCE(s.source, '')::pg_catalog.text AS source
FROM pg_catalog.pg_settings AS s
WHERE s.name OPERATOR(pg_catalog.=) ANY ('{idle_session_timeout, statement_timeout, transaction_timeout, lock_timeout,
        idle_in_transaction_session_timeout, tcp_user_timeout}'::pg_catalog.text[])
    AND s.setting OPERATOR(pg_catalog.<>) '0'
ORDER BY s.name;

-- name: TokenEpoch :one
-- TokenEpoch is the epoch of Confirm.
SELECT COALESCE((
    SELECT pg_catalog.substr(c.line, 17)
    FROM pg_catalog.pg_db_role_setting AS s, pg_catalog.unnest(s.setconfig) AS c(line)
    WHERE s.setrole OPERATOR(pg_catalog.=) 0::pg_catalog.oid AND pg_catalog.starts_with(c.line, 'pgelector.epoch=')
        AND s.setdatabase OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
), '0')::pg_catalog.text AS epoch;
