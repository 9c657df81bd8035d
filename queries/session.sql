-- name: ServerStart :one
-- ServerStart tells this server from one that another connection has reached, as
-- TryTransactionLock does.
SELECT extract(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.text AS started;

-- name: ShowsSnapshot :one
-- ShowsSnapshot reports whether another backend has a snapshot or a transaction id. seen is
-- false if this role may not see that. started and mark are as in TryTransactionLock.
SELECT pg_catalog.pg_backend_pid()::integer AS pid,
    extract(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.text AS started,
    extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text AS mark,
    EXISTS (
        SELECT FROM pg_catalog.pg_stat_activity AS a
        WHERE a.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
    )::boolean AS held,
    EXISTS (
        SELECT FROM pg_catalog.pg_stat_activity AS a
        WHERE a.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND a.state OPERATOR(pg_catalog.=) 'idle in transaction'
    )::boolean AS seen;

-- name: NamedStatement :execrows
-- NamedStatement returns a row if DescribeServer left a prepared statement with a name of
-- pgx's own on this backend, in this transaction: other clients of a pooler use the same names.
SELECT 1 FROM pg_catalog.pg_prepared_statements AS p
WHERE pg_catalog.starts_with(p.name, 'stmtcache_') AND pg_catalog.starts_with(p.statement, '-- name: DescribeServer ')
    AND p.prepare_time OPERATOR(pg_catalog.>=) pg_catalog.transaction_timestamp();

-- name: EvictHolder :many
-- EvictHolder terminates the backend with that process id if it holds the election's lock or
-- the lock of two integers, a seat or a life lock: a pooler shared it with others, and our lock
-- would stay on it. The lowest bit of pair does not matter.
SELECT pg_catalog.pg_terminate_backend(l.pid)::boolean AS signalled
FROM pg_catalog.pg_locks AS l
WHERE l.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
    AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    AND CASE WHEN l.objsubid OPERATOR(pg_catalog.=) 1
        THEN ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
        ELSE (((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.|) 1::bigint) OPERATOR(pg_catalog.=) (sqlc.arg(pair)::bigint OPERATOR(pg_catalog.|) 1::bigint)
    END
LIMIT 1;

-- name: Identify :one
-- Identify identifies the server. A standby has its primary's system identifier. The timeline
-- rises with each promotion; it is 0 on a standby. The address is the one that this
-- connection reached, and empty on a Unix socket.
SELECT
    (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c)::bigint AS system,
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0
        ELSE pg_catalog.concat('x', pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint
    END::bigint AS timeline,
    COALESCE(pg_catalog.host(pg_catalog.inet_server_addr()), '')::pg_catalog.text AS host,
    COALESCE(pg_catalog.inet_server_port(), 0)::integer AS port;

-- name: DescribeServer :one
-- DescribeServer returns what a candidate must know before its first attempt. It marks the
-- transaction (Confirm): in_transaction is true the next time only if other code left a
-- transaction open on the connection. started tells this server from others, whose process
-- ids may be the same.
SELECT
    pg_catalog.pg_backend_pid()::integer AS pid,
    pg_catalog.pg_is_in_recovery()::boolean AS in_recovery,
    pg_catalog.current_setting('server_version_num')::integer AS version_num,
    pg_catalog.version()::pg_catalog.text AS version,
    extract(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.text AS started,
    CASE WHEN COALESCE(pg_catalog.current_setting('pgelector.transaction', true), '') OPERATOR(pg_catalog.=) extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text THEN true
        ELSE pg_catalog.set_config('pgelector.transaction', extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text, true) IS NULL END::boolean AS in_transaction;

-- name: InTransaction :one
-- InTransaction follows PrepareWait, and reports whether both ran in the same transaction,
-- which other code left open on the connection.
SELECT (COALESCE(pg_catalog.current_setting('pgelector.transaction', true), '') OPERATOR(pg_catalog.=)
    extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text)::boolean AS in_transaction;

-- name: ApplySettings :one
-- ApplySettings sets the session's parameters from a JSON array of objects with name and
-- value, for this transaction only if only_local. It skips parameters that the server does
-- not know, and returns the number of those set.
SELECT pg_catalog.count(pg_catalog.set_config(s.name, s.value, sqlc.arg(only_local)::boolean))
FROM pg_catalog.json_to_recordset(sqlc.arg(settings)::pg_catalog.text::pg_catalog.json) AS s(name pg_catalog.text, value pg_catalog.text)
WHERE pg_catalog.current_setting(s.name, true) IS NOT NULL;

-- name: TryPair :one
-- TryPair tries a lock in the key space of two integers, where no list of elections looks.
-- With inside the lock lasts until the end of the transaction, else of the session.
SELECT CASE WHEN sqlc.arg(inside)::boolean THEN pg_catalog.pg_try_advisory_xact_lock(sqlc.arg(high)::integer, sqlc.arg(low)::integer)
    ELSE pg_catalog.pg_try_advisory_lock(sqlc.arg(high)::integer, sqlc.arg(low)::integer) END::boolean AS granted;

-- name: PairIsFree :one
-- PairIsFree checks that nobody holds a lock of two integers exclusively. It takes the lock
-- in share mode for the statement, so that those who check do not disturb each other.
SELECT pg_catalog.pg_try_advisory_xact_lock_shared(sqlc.arg(high)::integer, sqlc.arg(low)::integer)::boolean AS free,
    pg_catalog.pg_backend_pid()::integer AS pid;
