-- name: TryPair :one
-- TryPair tries a lock in the key space of two integers, where no list of elections looks.
-- inside is as for TryLock.
SELECT CASE WHEN sqlc.arg(inside)::boolean THEN pg_catalog.pg_try_advisory_xact_lock(sqlc.arg(high)::integer, sqlc.arg(low)::integer)
    ELSE pg_catalog.pg_try_advisory_lock(sqlc.arg(high)::integer, sqlc.arg(low)::integer) END::boolean AS granted;

-- name: PairIsFree :one
-- PairIsFree checks that nobody holds a lock of two integers exclusively. It takes the lock
-- in share mode for the statement, so that those who check do not disturb each other.
SELECT pg_catalog.pg_try_advisory_xact_lock_shared(sqlc.arg(high)::integer, sqlc.arg(low)::integer)::boolean AS free,
    pg_catalog.pg_backend_pid()::integer AS pid;

-- name: HoldsPair :one
-- HoldsPair is HoldsLock for the lock whose two integers are the halves of key.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_locks AS l
    WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
        AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 2
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
)::boolean AS held, pg_catalog.pg_backend_pid()::integer AS pid;

-- name: TrialLock :one
-- TrialLock takes a lock that nobody else knows until the statement ends, and checks that
-- pg_locks shows it: false means that the server's advisory locks are stubs. The two integers
-- are the halves of key. CASE evaluates the subplan that reads pg_locks after the lock was
-- granted.
SELECT CASE WHEN t.granted THEN EXISTS (
    SELECT FROM pg_catalog.pg_locks AS l
    WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
        AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 2
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
) ELSE false END::boolean AS shown
FROM (SELECT pg_catalog.pg_try_advisory_xact_lock(sqlc.arg(high)::integer, sqlc.arg(low)::integer) AS granted OFFSET 0) AS t;
