-- name: ValidateLocks :many
-- ValidateLocks is HeldLocks, and tells what the server spent until it had found each lock. The clock is
-- read behind the scan of pg_locks: OFFSET 0 keeps the planner from reading it before.
SELECT held.key::bigint AS key,
    (extract(epoch FROM (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp()))
        OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS spent_micros
FROM (
    SELECT ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint)::bigint AS key
    FROM pg_catalog.pg_locks AS l
    WHERE l.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
        AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
    OFFSET 0
) AS held;
