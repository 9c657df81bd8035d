-- name: Confirm :one
-- Confirm follows every attempt that may have been granted: whether pg_locks
-- shows that this very backend holds the lock in this database, and if so, the
-- barrier and the term's fencing token. A bigint key is shown in two halves,
-- classid and objid, with objsubid 1 (PostgreSQL manual, 54.12); comparing one
-- half alone would confuse keys that differ in the other. A backend's own locks are
-- of its own database.
--
-- The barrier takes the guard lock exclusively and lets go of it at once (the
-- statement is a transaction of its own), which waits for every fenced
-- transaction of earlier terms that is still in flight; every later one finds
-- that its term has ended. The guard lock has the same 64 bits as the election's
-- key, in the other key space of advisory locks (two integers), so it can meet no
-- election's lock.
--
-- The token has the timeline in the upper 16 bits, so that tokens rise across a
-- promotion, and the transaction id in the lower 48, so that they rise within
-- one. The timeline is the first 8 hex digits of the current WAL file's name;
-- pg_control_checkpoint() would still show the old one just after a promotion. A
-- transaction that has written nothing commits asynchronously, and a crash could
-- hand its id out again: the (empty) message makes the commit wait for the log.
--
-- The epoch is to be added to the timeline. It is the setting pgelector.epoch of the
-- database, as ALTER DATABASE … SET has stored it: current_setting would show that
-- only on connections made later.
--
-- in_transaction is a refusal: the statement before was in the same transaction, which
-- other code has left open on the connection. The barrier would stay until its end.
SELECT h.held::boolean AS held, pg_catalog.pg_backend_pid()::integer AS pid, CASE WHEN h.held AND NOT h.in_transaction THEN
    CASE WHEN pg_catalog.pg_advisory_xact_lock(sqlc.arg(guard_high)::integer, sqlc.arg(guard_low)::integer) IS NOT NULL
        AND pg_catalog.pg_logical_emit_message(true, 'pgelector', ''::pg_catalog.text) IS NOT NULL THEN
        (pg_catalog.concat('x', pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint OPERATOR(pg_catalog.<<) 48)
        OPERATOR(pg_catalog.|) pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint
    END
ELSE 0 END::bigint AS token,
COALESCE((
    SELECT pg_catalog.substr(c.line, 17)
    FROM pg_catalog.pg_db_role_setting AS s, pg_catalog.unnest(s.setconfig) AS c(line)
    WHERE s.setrole OPERATOR(pg_catalog.=) 0::pg_catalog.oid AND pg_catalog.starts_with(c.line, 'pgelector.epoch=')
        AND s.setdatabase OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
), '0')::pg_catalog.text AS epoch,
h.in_transaction::boolean AS in_transaction
FROM (SELECT COALESCE(pg_catalog.current_setting('pgelector.transaction', true), '') OPERATOR(pg_catalog.=) 'open' AS in_transaction, EXISTS (
    SELECT FROM pg_catalog.pg_locks AS l
    WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
        AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
) AS held OFFSET 0) AS h;

-- name: BackendStart :one
-- BackendStart is when this backend began, in microseconds since 1970. With the
-- process id it names a session for good: process ids are reused.
SELECT (extract(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS started
FROM pg_catalog.pg_stat_activity AS a
WHERE a.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid();

-- name: EnterTerm :one
-- EnterTerm fences the transaction that it is called in: it shares the guard
-- lock until the transaction ends, and then looks whether the election's lock is
-- still held by the session of the term. The order matters: a next leader either
-- waits at the barrier for this transaction, or is seen here. The outcome is
-- 'entered'; 'superseded' if a next leader is at the barrier; 'ended' if the
-- session does not hold the lock; 'hidden' if this role may not see when that
-- session began. First of all, timeouts that are off, or longer than what the
-- settings say, are set for the rest of this transaction, so that a client that
-- is frozen cannot hold up the barrier for ever: not even one that was refused,
-- and is frozen before it can roll back.
SELECT CASE
    WHEN (
        SELECT pg_catalog.count(pg_catalog.set_config(s.name, s.value, true))
        FROM pg_catalog.json_to_recordset(sqlc.arg(settings)::pg_catalog.text::pg_catalog.json) AS s(name pg_catalog.text, value pg_catalog.text)
        WHERE pg_catalog.current_setting(s.name, true)::interval OPERATOR(pg_catalog.<) '1 microsecond'::interval
            OR pg_catalog.current_setting(s.name, true)::interval OPERATOR(pg_catalog.>) s.value::interval
    ) IS NULL THEN 'never'
    WHEN NOT pg_catalog.pg_try_advisory_xact_lock_shared(sqlc.arg(guard_high)::integer, sqlc.arg(guard_low)::integer) THEN 'superseded'
    WHEN NOT EXISTS (
        SELECT FROM pg_catalog.pg_locks AS l
        WHERE l.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
            AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
            AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
            AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
    ) THEN 'ended'
    ELSE COALESCE((
        SELECT CASE WHEN (extract(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint OPERATOR(pg_catalog.=) sqlc.arg(started)::bigint THEN 'entered' ELSE 'ended' END
        FROM pg_catalog.pg_stat_activity AS a
        WHERE a.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND a.backend_start IS NOT NULL
    ), 'hidden')
END::pg_catalog.text AS outcome;

-- name: EndOverdue :many
-- EndOverdue ends the sessions that share an election's guard lock, key being
-- that of the election, in a transaction that began more than one lease ago, and
-- says which. Their own timeouts should have ended them, but no timeout of the
-- server runs while it waits to send a result to a frozen client, or for a frozen
-- client to go on with a COPY. It shows only transactions that this role may see,
-- and fails if it may not end one of them.
SELECT o.pid::integer AS pid, pg_catalog.pg_terminate_backend(o.pid)::boolean AS ended
FROM (
    SELECT l.pid
    FROM pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ShareLock' AND l.objsubid OPERATOR(pg_catalog.=) 2
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
        AND a.xact_start OPERATOR(pg_catalog.<)
            (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) (sqlc.arg(lease_millis)::bigint::double precision OPERATOR(pg_catalog.*) '1 millisecond'::interval))
    OFFSET 0
) AS o;
