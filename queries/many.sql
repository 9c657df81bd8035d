-- name: TryLocks :many
-- TryLocks is one attempt for many elections on one session: keys is a JSON array of integers,
-- as text. The outcome is 'granted', 'busy', or 'offered' if the lock is busy and its holder
-- offers it to this candidate (OfferTransfer), whose id is the session's application_name. If
-- it fails half-way (SQLSTATE 53200, the lock table is full), the session keeps the locks
-- granted so far (PostgreSQL manual, 9.27.10): HeldLocks lists them.
SELECT k.key::bigint AS key, CASE
    WHEN pg_catalog.pg_try_advisory_lock(k.key::bigint) THEN 'granted'
    WHEN NOT pg_catalog.pg_try_advisory_lock_shared(
        pg_catalog.hashtextextended(pg_catalog.current_setting('application_name'), k.key::bigint)) THEN 'offered'
    WHEN pg_catalog.pg_advisory_unlock_shared(
        pg_catalog.hashtextextended(pg_catalog.current_setting('application_name'), k.key::bigint)) THEN 'busy'
END::pg_catalog.text AS outcome
FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS k(key);

-- name: HeldLocks :many
-- HeldLocks lists the keys of the session-level advisory locks that this backend holds.
SELECT ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint)::bigint AS key
FROM pg_catalog.pg_locks AS l
WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
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
    ), '0')::pg_catalog.text AS epoch
FROM logged, pg_catalog.json_to_recordset(sqlc.arg(guards)::pg_catalog.text::pg_catalog.json) AS g(key bigint, high integer, low integer)
WHERE logged.position IS NOT NULL;

-- name: Leaders :many
-- Leaders is Holder for many elections. It omits those without a leader.
SELECT k.key::bigint AS key, l.pid::integer AS pid, COALESCE(a.application_name, '')::pg_catalog.text AS application_name
FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS k(key)
JOIN pg_catalog.pg_locks AS l ON ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) k.key::bigint
JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
    AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database());

-- name: LargestHolder :many
-- LargestHolder is the session that holds the most of these elections' locks, if anybody
-- holds one.
SELECT l.pid::integer AS pid, COALESCE(a.application_name, '')::pg_catalog.text AS application_name
FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS k(key)
JOIN pg_catalog.pg_locks AS l ON ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) k.key::bigint
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
    AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
GROUP BY l.pid, a.application_name
ORDER BY pg_catalog.count(*) DESC, l.pid
LIMIT 1;

-- name: UnlockMany :many
-- UnlockMany is Unlock for many locks: locks is a JSON array of objects with key. It is
-- UnlockAndNotify for those that have a channel and a payload, too.
SELECT l.key::bigint AS key, CASE
    WHEN NOT pg_catalog.pg_advisory_unlock(l.key) THEN false
    WHEN l.channel IS NULL THEN true
    ELSE pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL AND pg_catalog.pg_notify(l.channel, l.payload) IS NOT NULL
END::boolean AS released
FROM pg_catalog.json_to_recordset(sqlc.arg(locks)::pg_catalog.text::pg_catalog.json) AS l(key bigint, channel pg_catalog.text, payload pg_catalog.text);
