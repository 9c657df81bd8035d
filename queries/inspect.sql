-- name: AdvisoryLocks :many
-- AdvisoryLocks lists every session, of elections and of others, that holds an
-- exclusive advisory lock of a 64-bit key in this database, or waits for one: by
-- key, the holder first, then the longest waiting. What is hidden from this role
-- is empty or null, as for Holder.
SELECT
    ((l.classid::bigint << 32) | l.objid::bigint)::bigint AS key,
    l.granted::boolean AS granted,
    l.pid::integer AS pid,
    COALESCE(a.application_name, '')::text AS application_name,
    COALESCE(a.usename, '')::text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::text AS client_addr,
    a.backend_start,
    l.waitstart
FROM pg_catalog.pg_locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.objsubid = 1
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
ORDER BY key, l.granted DESC, l.waitstart NULLS LAST, l.pid;

-- name: Clock :one
-- Clock is the server's clock at this moment, in microseconds since 1970.
SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint AS micros;

-- name: Capacity :one
-- Capacity is what an election needs room in: the lock table, and connections.
-- A limit of -1 is none. Locks that are held by the fast path take no room.
SELECT
    (pg_catalog.current_setting('max_locks_per_transaction')::bigint
        * (pg_catalog.current_setting('max_connections')::bigint + pg_catalog.current_setting('max_prepared_transactions')::bigint))::bigint AS lock_slots,
    (SELECT count(*) FROM pg_catalog.pg_locks AS l WHERE NOT l.fastpath)::bigint AS locks,
    (pg_catalog.current_setting('max_connections')::bigint
        - pg_catalog.current_setting('superuser_reserved_connections')::bigint
        - COALESCE(pg_catalog.current_setting('reserved_connections', true), '0')::bigint)::bigint AS connection_slots,
    (SELECT count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.backend_type = 'client backend')::bigint AS connections,
    (SELECT r.rolconnlimit FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user)::bigint AS role_limit,
    (SELECT count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.usename = current_user)::bigint AS role_connections,
    (SELECT d.datconnlimit FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())::bigint AS database_limit,
    (SELECT count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = pg_catalog.current_database())::bigint AS database_connections;

-- name: Privileges :one
-- Privileges are those that an operator misses sooner or later.
SELECT
    current_user::text AS role,
    pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'MEMBER')::boolean AS reads_stats,
    pg_catalog.pg_has_role(current_user, 'pg_signal_backend', 'MEMBER')::boolean AS signals_backends;

-- name: SessionEnders :many
-- SessionEnders are the settings by which the server would end a session, or a
-- statement of it, as this connection finds them; those that are off are left out.
SELECT s.name::text AS name, pg_catalog.current_setting(s.name)::text AS value, COALESCE(s.source, '')::text AS source
FROM pg_catalog.pg_settings AS s
WHERE s.name IN ('idle_session_timeout', 'statement_timeout', 'transaction_timeout', 'lock_timeout',
        'idle_in_transaction_session_timeout', 'tcp_user_timeout')
    AND s.setting <> '0'
ORDER BY s.name;
