-- name: AdvisoryLocks :many
-- AdvisoryLocks lists every session that holds or waits for an exclusive advisory lock with a
-- 64-bit key in this database: by key, the holder first, then the waiters in order. As in
-- Holder, what this role may not see is empty or 0.
SELECT
    ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint)::bigint AS key,
    l.granted::boolean AS granted,
    l.pid::integer AS pid,
    COALESCE(a.application_name, '')::pg_catalog.text AS application_name,
    COALESCE(a.usename, '')::pg_catalog.text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::pg_catalog.text AS client_addr,
    COALESCE(extract(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS connected_micros,
    COALESCE(extract(epoch FROM l.waitstart) OPERATOR(pg_catalog.*) 1000000::numeric, 0)::bigint AS waiting_micros
FROM pg_catalog.pg_locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
    AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
ORDER BY key, l.granted DESC, l.waitstart NULLS LAST, l.pid;

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
