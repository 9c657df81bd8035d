-- name: TryLock :one
-- TryLock is one attempt to be elected: it tries the session-level advisory lock. If that is
-- busy, and the candidate may sit, it tries the election's two seats: locks in the key space
-- of two integers that differ in the lowest bit. A leader takes a free seat, too, so that
-- only one is left for a deputy. If the lock or a seat is granted, TryLock applies the
-- session settings, a JSON array of objects with name and value, as far as the server knows
-- them. CASE evaluates its branches in order (PostgreSQL manual, 9.18.1), so it does not lock
-- on a standby, and a busy lock changes nothing on the connection: the lock of an offer is
-- let go at once, also in a transaction that other code left open. What is granted marks the
-- transaction (Confirm). The outcome is 'standby', 'granted', 'busy', 'deputy' if the lock is busy
-- and a seat was granted, or 'offered' if the lock is busy and an offer of it to this candidate
-- stands (HolderOffers).
--
-- A session tells others about its term (Holder) by two locks of two integers, which it shares:
-- a constant and the lease in milliseconds, taken with the settings; and a constant and the
-- second since 1970 in which the term began, taken by Confirm. A role without privileges sees
-- of another one only its locks. They are two for each session, and not for each election: a
-- session of many elections does not tell since when it leads them. The constants are the last
-- 31 bits of the first 32 of SHA-256 over "pgelector lease", "pgelector lease in transaction"
-- (TryTransactionLock) and "pgelector since".
--
-- If look is true, TryLock also returns the session that holds a
-- busy lock; leader_pid is 0 if it was just released.
WITH attempt AS MATERIALIZED (
    SELECT CASE
        WHEN pg_catalog.pg_is_in_recovery() THEN 'standby'
        WHEN pg_catalog.pg_try_advisory_lock(sqlc.arg(key)::bigint) THEN 'granted'
        WHEN NOT pg_catalog.pg_try_advisory_lock_shared(sqlc.arg(offer_high)::integer, sqlc.arg(offer_low)::integer) THEN 'offered'
        WHEN NOT pg_catalog.pg_advisory_unlock_shared(sqlc.arg(offer_high)::integer, sqlc.arg(offer_low)::integer) THEN 'busy'
        ELSE 'busy'
    END AS outcome
), seat AS MATERIALIZED (
    SELECT attempt.outcome, CASE
        WHEN attempt.outcome OPERATOR(pg_catalog.<>) 'granted' AND NOT (attempt.outcome OPERATOR(pg_catalog.=) 'busy' AND sqlc.arg(sit)::boolean) THEN false
        WHEN pg_catalog.pg_try_advisory_lock(sqlc.arg(seat_high)::integer, sqlc.arg(seat_low)::integer) THEN true
        ELSE pg_catalog.pg_try_advisory_lock(sqlc.arg(seat_high)::integer, sqlc.arg(seat_low)::integer OPERATOR(pg_catalog.#) 1)
    END AS seated
    FROM attempt
), setup AS MATERIALIZED (
    SELECT seat.seated, CASE WHEN seat.seated AND seat.outcome OPERATOR(pg_catalog.=) 'busy' THEN 'deputy' ELSE seat.outcome END AS outcome,
        CASE WHEN seat.seated OR seat.outcome OPERATOR(pg_catalog.=) 'granted' THEN (
            SELECT CASE WHEN pg_catalog.set_config('pgelector.transaction', extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text, true) IS NOT NULL
                    AND pg_catalog.count(pg_catalog.pg_try_advisory_lock_shared(318473925, s.value::integer))
                        FILTER (WHERE s.name OPERATOR(pg_catalog.=) 'idle_session_timeout') IS NOT NULL
                THEN pg_catalog.count(pg_catalog.set_config(s.name, s.value, false)) END
            FROM pg_catalog.json_to_recordset(sqlc.arg(settings)::pg_catalog.text::pg_catalog.json) AS s(name pg_catalog.text, value pg_catalog.text)
            WHERE pg_catalog.current_setting(s.name, true) IS NOT NULL
        ) END AS applied
    FROM seat
), leader AS (
    SELECT l.pid, a.application_name
    FROM pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
)
SELECT
    setup.outcome::pg_catalog.text AS outcome,
    setup.seated::boolean AS seated,
    pg_catalog.pg_backend_pid()::integer AS pid,
    COALESCE(CASE WHEN sqlc.arg(look)::boolean AND setup.outcome OPERATOR(pg_catalog.<>) 'granted' THEN (SELECT leader.pid FROM leader) END, 0)::integer AS leader_pid,
    COALESCE(CASE WHEN sqlc.arg(look)::boolean AND setup.outcome OPERATOR(pg_catalog.<>) 'granted' THEN (SELECT leader.application_name FROM leader) END, '')::pg_catalog.text AS leader_id
FROM setup;

-- name: TryTransactionLock :one
-- TryTransactionLock is TryLock in transaction scope: locks and settings last until the end
-- of the transaction. The locks of the relations that it would read to look for the leader
-- would, too, so it does not. started tells this server from one that another connection has
-- reached. mark is the mark of the transaction (Confirm).
WITH attempt AS MATERIALIZED (
    SELECT CASE
        WHEN pg_catalog.pg_is_in_recovery() THEN 'standby'
        WHEN pg_catalog.pg_try_advisory_xact_lock(sqlc.arg(key)::bigint) THEN 'granted'
        WHEN NOT pg_catalog.pg_try_advisory_lock_shared(sqlc.arg(offer_high)::integer, sqlc.arg(offer_low)::integer) THEN 'offered'
        WHEN NOT pg_catalog.pg_advisory_unlock_shared(sqlc.arg(offer_high)::integer, sqlc.arg(offer_low)::integer) THEN 'busy'
        ELSE 'busy'
    END AS outcome
), seat AS MATERIALIZED (
    SELECT attempt.outcome, CASE
        WHEN attempt.outcome OPERATOR(pg_catalog.<>) 'granted' AND NOT (attempt.outcome OPERATOR(pg_catalog.=) 'busy' AND sqlc.arg(sit)::boolean) THEN false
        WHEN pg_catalog.pg_try_advisory_xact_lock(sqlc.arg(seat_high)::integer, sqlc.arg(seat_low)::integer) THEN true
        ELSE pg_catalog.pg_try_advisory_xact_lock(sqlc.arg(seat_high)::integer, sqlc.arg(seat_low)::integer OPERATOR(pg_catalog.#) 1)
    END AS seated
    FROM attempt
), setup AS MATERIALIZED (
    SELECT seat.seated, CASE WHEN seat.seated AND seat.outcome OPERATOR(pg_catalog.=) 'busy' THEN 'deputy' ELSE seat.outcome END AS outcome,
        CASE WHEN seat.seated OR seat.outcome OPERATOR(pg_catalog.=) 'granted' THEN (
            SELECT CASE WHEN pg_catalog.set_config('pgelector.transaction', extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text, true) IS NOT NULL
                    AND pg_catalog.count(pg_catalog.pg_try_advisory_xact_lock_shared(1530767677, s.value::integer))
                        FILTER (WHERE s.name OPERATOR(pg_catalog.=) 'idle_session_timeout') IS NOT NULL
                THEN pg_catalog.count(pg_catalog.set_config(s.name, s.value, true)) END
            FROM pg_catalog.json_to_recordset(sqlc.arg(settings)::pg_catalog.text::pg_catalog.json) AS s(name pg_catalog.text, value pg_catalog.text)
            WHERE pg_catalog.starts_with(s.name, 'pgelector.') OR pg_catalog.current_setting(s.name, true) IS NOT NULL
        ) END AS applied,
        CASE WHEN seat.outcome OPERATOR(pg_catalog.=) 'granted' THEN pg_catalog.pg_try_advisory_xact_lock_shared(
            521961639, pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()))::bigint::bit(32)::integer) END AS marked
    FROM seat
)
SELECT setup.outcome::pg_catalog.text AS outcome, setup.seated::boolean AS seated, pg_catalog.pg_backend_pid()::integer AS pid,
    extract(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.text AS started,
    extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text AS mark
FROM setup;

-- name: TryAsDeputy :one
-- TryAsDeputy is the deputy's question: may it lead now? The pid shows whether a pooler has
-- sent the statement to another backend than before.
SELECT pg_catalog.pg_try_advisory_lock(sqlc.arg(key)::bigint)::boolean AS granted, pg_catalog.pg_backend_pid()::integer AS pid;

-- name: TryInTransaction :execrows
-- TryInTransaction is TryAsDeputy inside a transaction, for the lock of the setting
-- pgelector.key. It has no arguments, so that both drivers send it by the simple protocol: the
-- portal of the extended one would keep its snapshot. It returns two rows if the lock is
-- granted, or was before; one if it is busy; none if the transaction has ended.
SELECT 1 FROM pg_catalog.generate_series(1, CASE
    WHEN COALESCE(pg_catalog.current_setting('pgelector.transaction', true), '') OPERATOR(pg_catalog.<>)
        extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text THEN 0
    WHEN NOT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.current_setting('pgelector.key')::bigint) THEN 1
    WHEN pg_catalog.pg_try_advisory_xact_lock_shared(521961639, pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()))::bigint::bit(32)::integer) THEN 2
    ELSE 2
END);

-- name: HoldsLock :one
-- HoldsLock checks in pg_locks that this backend, of that pid, holds the lock: Confirm without
-- the barrier and the token, for a current term. A transaction proves that by going on. (A
-- backend's locks are of its own database, and pg_database needs a place in the lock table.)
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_locks AS l
    WHERE l.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
        AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
)::boolean AS held, pg_catalog.pg_backend_pid()::integer AS pid;

-- name: TryLocks :many
-- TryLocks is one attempt for many elections on one session: offers is a JSON array of objects
-- with the key of an election, and high and low, the two integers of the offer's lock. The
-- outcome is 'granted', 'busy', or 'offered' if the lock is busy and an offer of it to this
-- candidate stands (HolderOffers). If
-- it fails half-way (SQLSTATE 53200, the lock table is full), the session keeps the locks
-- granted so far (PostgreSQL manual, 9.27.10): HeldLocks lists them.
SELECT k.key::bigint AS key, CASE
    WHEN pg_catalog.pg_try_advisory_lock(k.key::bigint) THEN 'granted'
    WHEN NOT pg_catalog.pg_try_advisory_lock_shared(k.high::integer, k.low::integer) THEN 'offered'
    WHEN pg_catalog.pg_advisory_unlock_shared(k.high::integer, k.low::integer) THEN 'busy'
END::pg_catalog.text AS outcome, pg_catalog.pg_backend_pid()::integer AS pid
FROM pg_catalog.json_to_recordset(sqlc.arg(offers)::pg_catalog.text::pg_catalog.json) AS k(key bigint, high integer, low integer);

-- name: HeldLocks :many
-- HeldLocks lists the keys of the session-level advisory locks that a backend holds.
SELECT ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint)::bigint AS key
FROM pg_catalog.pg_locks AS l
WHERE l.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
    AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1;

-- name: Tokens :many
-- Tokens returns the tokens of many elections: guards is a JSON array of objects with key,
-- high and low. It does not wait at a barrier, which would delay the session's other
-- elections: passed is false if a fenced transaction of the last term is still open. The
-- epoch is that of Confirm.
WITH logged AS MATERIALIZED (
    SELECT pg_catalog.pg_logical_emit_message(true, 'pgelector', ''::pg_catalog.text) AS position
)
SELECT g.key::bigint AS key,
    pg_catalog.pg_try_advisory_xact_lock(g.high::integer, g.low::integer)::boolean AS passed,
    ((pg_catalog.concat('x', pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint OPERATOR(pg_catalog.<<) 48)
    OPERATOR(pg_catalog.|) pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint)::bigint AS token,
    COALESCE((
        SELECT pg_catalog.substr(c.line, 17)
        FROM pg_catalog.pg_db_role_setting AS s, pg_catalog.unnest(s.setconfig) AS c(line)
        WHERE s.setrole OPERATOR(pg_catalog.=) 0::pg_catalog.oid AND pg_catalog.starts_with(c.line, 'pgelector.epoch=')
            AND s.setdatabase OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    ), '0')::pg_catalog.text AS epoch,
    pg_catalog.pg_backend_pid()::integer AS pid
FROM logged, pg_catalog.json_to_recordset(sqlc.arg(guards)::pg_catalog.text::pg_catalog.json) AS g(key bigint, high integer, low integer)
WHERE logged.position IS NOT NULL;

-- name: Leaders :many
-- Leaders is Holder for many elections. It omits those without a leader. overdue_millis is how long ago the
-- lease of the leader's session ran out; 0 if it has not, has none, or this role may not see it. An ANY within
-- CASE is a hash table, whatever the planner expects.
WITH locks AS MATERIALIZED (
    SELECT l.pid, l.objsubid, l.objid::bigint AS low, ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) AS key
    FROM pg_catalog.pg_locks AS l
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND CASE
            WHEN l.objsubid OPERATOR(pg_catalog.=) 2 THEN l.mode OPERATOR(pg_catalog.=) 'ShareLock' AND l.classid::bigint OPERATOR(pg_catalog.=) ANY ('{318473925, 1530767677}'::bigint[])
            WHEN l.mode OPERATOR(pg_catalog.<>) 'ExclusiveLock' THEN false
            WHEN ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) ANY (
                SELECT k.key::bigint FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS k(key)) THEN true
            ELSE false
        END
), leased AS MATERIALIZED (
    SELECT l.pid, pg_catalog.max(l.low) AS millis FROM locks AS l WHERE l.objsubid OPERATOR(pg_catalog.=) 2 GROUP BY l.pid
)
SELECT h.key::bigint AS key, h.pid::integer AS pid, COALESCE(a.application_name, '')::pg_catalog.text AS application_name,
    GREATEST(0::numeric, COALESCE(extract(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) a.state_change) OPERATOR(pg_catalog.*) 1000::numeric
        OPERATOR(pg_catalog.-) leased.millis::numeric, 0::numeric))::bigint AS overdue_millis
FROM locks AS h
JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) h.pid
LEFT JOIN leased ON leased.pid OPERATOR(pg_catalog.=) h.pid
WHERE h.objsubid OPERATOR(pg_catalog.=) 1;

-- name: LargestHolder :many
-- LargestHolder is the session that holds the most of these elections' locks, if anybody
-- holds one.
WITH held AS MATERIALIZED (
    SELECT l.pid, pg_catalog.count(*) AS n
    FROM pg_catalog.pg_locks AS l
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND l.pid IS NOT NULL
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND CASE WHEN ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) ANY (
            SELECT k.key::bigint FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS k(key)) THEN true ELSE false END
    GROUP BY l.pid
    ORDER BY n DESC, l.pid
    LIMIT 1
)
SELECT h.pid::integer AS pid, COALESCE(a.application_name, '')::pg_catalog.text AS application_name
FROM held AS h
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) h.pid;

-- name: UnlockMany :many
-- UnlockMany is Unlock for many locks: keys is as for TryLocks.
SELECT k.key::bigint AS key, pg_catalog.pg_advisory_unlock(k.key::bigint)::boolean AS released
FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS k(key);
