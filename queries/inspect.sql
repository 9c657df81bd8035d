-- name: AdvisoryLocks :many
-- AdvisoryLocks lists the sessions that hold or wait for an exclusive advisory lock with a
-- 64-bit key in this database, and those that hold a seat of that election: by key, the holder
-- first, then the deputy, then the waiters in order. The key of the seats is that of
-- session.SeatKey; its lowest bit does not matter. As in Holder, what this role may not see is
-- empty or 0, and the last columns are those of Holder. last_micros is when the session last
-- began or ended a statement.
WITH every AS MATERIALIZED (
    SELECT l.objsubid, l.granted, l.pid, l.waitstart, l.mode, l.classid::bigint AS high, l.objid::bigint AS low,
        ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) AS key
    FROM pg_catalog.pg_locks AS l
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory'
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
), told AS (
    SELECT t.pid,
        pg_catalog.max(t.low) FILTER (WHERE t.high OPERATOR(pg_catalog.<>) 521961639::bigint) AS lease,
        pg_catalog.max(t.low) FILTER (WHERE t.high OPERATOR(pg_catalog.=) 521961639::bigint) AS since,
        pg_catalog.bool_or(t.high OPERATOR(pg_catalog.=) 1530767677::bigint) AS inside
    FROM every AS t
    WHERE t.objsubid OPERATOR(pg_catalog.=) 2 AND t.mode OPERATOR(pg_catalog.=) 'ShareLock' AND t.granted
        AND t.high OPERATOR(pg_catalog.=) ANY ('{318473925, 1530767677, 521961639}'::bigint[])
    GROUP BY t.pid
), locks AS (
    SELECT t.objsubid, t.granted, t.pid, t.waitstart, t.key FROM every AS t WHERE t.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
), elections AS MATERIALIZED (
    SELECT DISTINCT k.key, pg_catalog.concat('x', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(
        pg_catalog.convert_to('pgelector seat:', 'UTF8') OPERATOR(pg_catalog.||) pg_catalog.int8send(k.key)), 'hex'), 16))::bit(64)::bigint AS seat
    FROM locks AS k
    WHERE k.objsubid OPERATOR(pg_catalog.=) 1
), parts AS (
    SELECT k.key, k.pid, k.granted AS leads, false AS seated, k.waitstart FROM locks AS k WHERE k.objsubid OPERATOR(pg_catalog.=) 1
    UNION ALL
    SELECT e.key, k.pid, false, true, NULL FROM locks AS k
    JOIN elections AS e ON (e.seat OPERATOR(pg_catalog.|) 1::bigint) OPERATOR(pg_catalog.=) (k.key OPERATOR(pg_catalog.|) 1::bigint)
    WHERE k.objsubid OPERATOR(pg_catalog.=) 2 AND k.granted
)
SELECT
    p.key::bigint AS key,
    pg_catalog.bool_or(p.leads)::boolean AS granted,
    (pg_catalog.bool_or(p.seated) AND NOT pg_catalog.bool_or(p.leads))::boolean AS deputy,
    p.pid::integer AS pid,
    COALESCE(a.application_name, '')::pg_catalog.text AS application_name,
    COALESCE(a.usename, '')::pg_catalog.text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::pg_catalog.text AS client_addr,
    COALESCE(extract(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS connected_micros,
    COALESCE(extract(epoch FROM pg_catalog.max(p.waitstart)) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS waiting_micros,
    COALESCE(extract(epoch FROM GREATEST(a.query_start, a.state_change)) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS last_micros,
    COALESCE(told.lease, 0)::bigint AS lease_millis,
    COALESCE(told.since OPERATOR(pg_catalog.*) 1000000::bigint, 0)::bigint AS since_micros,
    COALESCE(told.inside, false)::boolean AS in_transaction
FROM parts AS p
JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) p.pid
LEFT JOIN told ON told.pid OPERATOR(pg_catalog.=) p.pid
GROUP BY p.key, p.pid, a.application_name, a.usename, a.client_addr, a.backend_start, a.query_start, a.state_change, told.lease, told.since, told.inside
ORDER BY p.key, granted DESC, deputy DESC, pg_catalog.max(p.waitstart) NULLS LAST, p.pid;

-- name: Clock :one
-- Clock is the server's clock, in microseconds since 1970.
SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS micros;

-- name: Capacity :one
-- Capacity is the use and size of the lock table and of the connection limits. A limit of -1
-- means none. Fast-path locks do not use the lock table.
SELECT
    (pg_catalog.current_setting('max_locks_per_transaction')::bigint
        OPERATOR(pg_catalog.*) (pg_catalog.current_setting('max_connections')::bigint
            OPERATOR(pg_catalog.+) pg_catalog.current_setting('max_prepared_transactions')::bigint))::bigint AS lock_slots,
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks AS l WHERE NOT l.fastpath)::bigint AS locks,
    (pg_catalog.current_setting('max_connections')::bigint
        OPERATOR(pg_catalog.-) pg_catalog.current_setting('superuser_reserved_connections')::bigint
        OPERATOR(pg_catalog.-) COALESCE(pg_catalog.current_setting('reserved_connections', true), '0')::bigint)::bigint AS connection_slots,
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.backend_type OPERATOR(pg_catalog.=) 'client backend')::bigint AS connections,
    (SELECT r.rolconnlimit FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) current_user)::bigint AS role_limit,
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.usename OPERATOR(pg_catalog.=) current_user)::bigint AS role_connections,
    (SELECT d.datconnlimit FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())::bigint AS database_limit,
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())::bigint AS database_connections;

-- name: Privileges :one
-- Privileges are those that operators need.
SELECT
    current_user::pg_catalog.text AS role,
    pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'MEMBER')::boolean AS reads_stats,
    pg_catalog.pg_has_role(current_user, 'pg_signal_backend', 'MEMBER')::boolean AS signals_backends;

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
