-- name: CallHeir :one
-- CallHeir calls a candidate to be the leader's heir: the leader takes a lock of
-- which only that candidate takes note, in its own attempts (outcome 'called'). Its
-- key is made by the server, of the election's key and the candidate's id. called is
-- false while that candidate is looking, which takes a moment.
SELECT pg_catalog.pg_try_advisory_lock(c.call_key)::boolean AS called, c.call_key::bigint AS call_key
FROM (SELECT pg_catalog.hashtextextended(sqlc.arg(candidate)::pg_catalog.text, sqlc.arg(key)::bigint) AS call_key OFFSET 0) AS c;

-- name: IsCalled :one
-- IsCalled asks, on a candidate's own session, whether it is still called.
SELECT (NOT pg_catalog.pg_try_advisory_xact_lock_shared(
    pg_catalog.hashtextextended(pg_catalog.current_setting('application_name'), sqlc.arg(key)::bigint)))::boolean AS called;

-- name: ClearTheWay :one
-- ClearTheWay is the place of a candidate in the queue for a lock: 1 is the first, 0
-- is none. The waits of those before it are cancelled, which sends them to the end of
-- the queue: a wait that is cancelled is begun anew, and leaves no trace in the
-- server's log. Sessions of other roles, which this one may not be allowed to signal,
-- are left alone: their waits end by themselves within a heartbeat interval.
WITH queue AS MATERIALIZED (
    SELECT l.pid, a.application_name, a.usename, pg_catalog.row_number() OVER (ORDER BY l.waitstart NULLS LAST, l.pid) AS place
    FROM pg_catalog.pg_locks AS l
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND NOT l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
), heir AS MATERIALIZED (
    SELECT pg_catalog.min(queue.place) AS place FROM queue WHERE queue.application_name OPERATOR(pg_catalog.=) sqlc.arg(candidate)::pg_catalog.text
)
SELECT COALESCE(heir.place, 0)::bigint AS place, (
    SELECT pg_catalog.count(CASE WHEN queue.place OPERATOR(pg_catalog.<) heir.place AND queue.usename OPERATOR(pg_catalog.=) current_user THEN pg_catalog.pg_cancel_backend(queue.pid) END) FROM queue
)::bigint AS sent_away
FROM heir;

-- name: UnlockFor :one
-- UnlockFor is Unlock if a candidate is the first in the lock's queue: the server
-- then grants it the lock as part of the release. inherited is whether it has: its
-- wait may have run out just before. If it is not the first, the way is cleared as by
-- ClearTheWay.
WITH queue AS MATERIALIZED (
    SELECT l.pid, a.application_name, a.usename, pg_catalog.row_number() OVER (ORDER BY l.waitstart NULLS LAST, l.pid) AS place
    FROM pg_catalog.pg_locks AS l
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND NOT l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
), heir AS MATERIALIZED (
    SELECT pg_catalog.min(queue.place) AS place FROM queue WHERE queue.application_name OPERATOR(pg_catalog.=) sqlc.arg(candidate)::pg_catalog.text
), release AS MATERIALIZED (
    SELECT CASE WHEN heir.place OPERATOR(pg_catalog.=) 1 THEN pg_catalog.pg_advisory_unlock(sqlc.arg(key)::bigint) ELSE false END AS released
    FROM heir
)
SELECT release.released::boolean AS released,
    EXISTS (
        SELECT FROM pg_catalog.pg_locks AS l
        JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
        WHERE release.released AND a.application_name OPERATOR(pg_catalog.=) sqlc.arg(candidate)::pg_catalog.text
            AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
            AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
            AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
    )::boolean AS inherited,
    (SELECT pg_catalog.count(CASE WHEN queue.place OPERATOR(pg_catalog.<) heir.place AND queue.usename OPERATOR(pg_catalog.=) current_user THEN pg_catalog.pg_cancel_backend(queue.pid) END) FROM queue
    )::bigint AS sent_away
FROM heir, release;
