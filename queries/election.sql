-- The statements of the kernel (internal/election): an election needs no others. Every name is qualified with pg_catalog,
-- because a search_path may lead to functions and operators of other people, who need only one schema to write to.

-- name: TryElection :one
-- TryElection is one attempt. It tries the lock, unless the server is a standby: a standby grants locks of its own. If the
-- lock is granted, the statement applies the settings (a JSON array of objects with name and value; it skips those that the
-- server does not know), shares a lock that tells others the lease, and marks the transaction for ConfirmElection. If the
-- lock is busy, nothing changes on the connection; with look, the statement returns the holder. (CASE evaluates its branches
-- in order: PostgreSQL manual, 9.18.1.)
WITH attempt AS MATERIALIZED (
    SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'standby'
        WHEN pg_catalog.pg_try_advisory_lock(sqlc.arg(key)::bigint) THEN 'granted' ELSE 'busy' END AS outcome
), setup AS MATERIALIZED (
    SELECT attempt.outcome, CASE WHEN attempt.outcome OPERATOR(pg_catalog.=) 'granted' THEN (
        SELECT pg_catalog.concat(pg_catalog.count(pg_catalog.set_config(s.name, s.value, false)),
            pg_catalog.count(CASE WHEN s.name OPERATOR(pg_catalog.=) 'idle_session_timeout' THEN pg_catalog.pg_try_advisory_lock_shared(318473925, s.value::integer) END),
            pg_catalog.set_config('pgelector.transaction', extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text, true))
        FROM pg_catalog.json_to_recordset(sqlc.arg(settings)::pg_catalog.text::pg_catalog.json) AS s(name pg_catalog.text, value pg_catalog.text)
        WHERE pg_catalog.current_setting(s.name, true) IS NOT NULL
    ) END AS applied FROM attempt
), leader AS (
    SELECT l.pid, a.application_name FROM setup, pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE sqlc.arg(look)::boolean AND setup.outcome OPERATOR(pg_catalog.=) 'busy'
        AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
)
SELECT setup.outcome::pg_catalog.text AS outcome, pg_catalog.pg_backend_pid()::integer AS pid,
    COALESCE((SELECT leader.pid FROM leader), 0)::integer AS leader_pid, COALESCE((SELECT leader.application_name FROM leader), '')::pg_catalog.text AS leader_id
FROM setup;

-- name: ConfirmElection :one
-- ConfirmElection follows a try that was granted. It looks for the lock in pg_locks. Only if pg_locks shows the lock, the
-- statement waits at the barrier, for the fenced transactions of earlier terms, and makes the token: the timeline in the
-- upper 16 bits, the transaction id in the lower 48. The empty message makes the commit wait for the WAL, because a crash
-- could give the id of a transaction that wrote nothing to another one. The lock of two integers tells others since when the
-- session leads. in_transaction says that other code has left a transaction open: then the barrier would last as long as
-- that transaction, so held is false.
SELECT (t.token IS NOT NULL)::boolean AS held, pg_catalog.pg_backend_pid()::integer AS pid, t.in_transaction::boolean AS in_transaction,
    COALESCE(t.token, 0)::bigint AS token, COALESCE((
        SELECT pg_catalog.substr(c.line, 17) FROM pg_catalog.pg_db_role_setting AS s, pg_catalog.unnest(s.setconfig) AS c(line)
        WHERE s.setrole OPERATOR(pg_catalog.=) 0::pg_catalog.oid AND pg_catalog.starts_with(c.line, 'pgelector.epoch=')
            AND s.setdatabase OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    ), '0')::pg_catalog.text AS epoch
FROM (SELECT h.in_transaction, CASE WHEN h.held AND NOT h.in_transaction THEN
        CASE WHEN pg_catalog.pg_advisory_xact_lock(sqlc.arg(guard_high)::integer, sqlc.arg(guard_low)::integer) IS NOT NULL
            AND pg_catalog.pg_logical_emit_message(true, 'pgelector', ''::pg_catalog.text) IS NOT NULL
            AND pg_catalog.pg_try_advisory_lock_shared(521961639, pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()))::bigint::bit(32)::integer) IS NOT NULL THEN
            (pg_catalog.concat('x', pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint OPERATOR(pg_catalog.<<) 48)
            OPERATOR(pg_catalog.|) pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint
        END END AS token
    FROM (SELECT COALESCE(pg_catalog.current_setting('pgelector.transaction', true), '') OPERATOR(pg_catalog.=) extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text AS in_transaction, EXISTS (
            SELECT FROM pg_catalog.pg_locks AS l
            WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
                AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
        ) AS held OFFSET 0) AS h OFFSET 0) AS t;

-- name: HoldsElection :one
-- HoldsElection looks in pg_locks for the lock of this backend. (A backend has locks of its own database only.)
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_locks AS l
    WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
)::boolean AS held, pg_catalog.pg_backend_pid()::integer AS pid;

-- name: Ping :one
-- Ping is a heartbeat. Its answer proves that the session lives, and the statement restarts the server's idle timer. A pid
-- that is not the session's shows that a pooler moved the session to another backend, and in_recovery that the server was
-- demoted. Ping tries the bell of the session and releases it: rung says that somebody has a request (Ring).
SELECT pg_catalog.pg_backend_pid()::integer AS pid, pg_catalog.pg_is_in_recovery()::boolean AS in_recovery,
    CASE WHEN pg_catalog.pg_try_advisory_lock(983268819, pg_catalog.pg_backend_pid())
        THEN NOT pg_catalog.pg_advisory_unlock(983268819, pg_catalog.pg_backend_pid()) ELSE true END::boolean AS rung;

-- name: WhoAnswers :one
-- WhoAnswers is a heartbeat that takes no lock, for a server whose lock table is full.
SELECT pg_catalog.pg_backend_pid()::integer AS pid, pg_catalog.pg_is_in_recovery()::boolean AS in_recovery;

-- name: Unlock :one
-- Unlock releases the lock. It is true only if the session held the lock (PostgreSQL manual, 9.27.10).
SELECT pg_catalog.pg_advisory_unlock(sqlc.arg(key)::bigint)::boolean AS released;

-- name: TrialLock :one
-- TrialLock takes a lock that nobody else knows, releases it, and reports whether pg_locks showed the lock. false means that
-- the server's advisory locks are stubs. On some servers only the locks of sessions are stubs: with inside, TrialLock takes a
-- lock of the transaction, which lasts until the transaction ends. The two integers are the halves of key. CASE reads
-- pg_locks after the lock was granted, and OFFSET 0 keeps the server from merging the steps.
SELECT CASE WHEN sqlc.arg(inside)::boolean THEN t.shown
    WHEN pg_catalog.pg_advisory_unlock(sqlc.arg(high)::integer, sqlc.arg(low)::integer) THEN t.shown
    ELSE false END::boolean AS shown
FROM (SELECT CASE WHEN taken.granted THEN EXISTS (
        SELECT FROM pg_catalog.pg_locks AS l
        WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
            AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 2
            AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
    ) ELSE false END AS shown
    FROM (SELECT CASE WHEN sqlc.arg(inside)::boolean THEN pg_catalog.pg_try_advisory_xact_lock(sqlc.arg(high)::integer, sqlc.arg(low)::integer)
        ELSE pg_catalog.pg_try_advisory_lock(sqlc.arg(high)::integer, sqlc.arg(low)::integer) END AS granted OFFSET 0) AS taken
    OFFSET 0) AS t;
