-- name: OfferTransfer :one
-- OfferTransfer offers the election's lock to one candidate: the leader takes a lock that only
-- that candidate tries, in its own attempts (outcome 'offered'). The server derives its key
-- from the election's key and the candidate's id. offered is false if the candidate is trying
-- it at this moment.
SELECT pg_catalog.pg_try_advisory_lock(c.offer_key)::boolean AS offered, c.offer_key::bigint AS offer_key
FROM (SELECT pg_catalog.hashtextextended(sqlc.arg(candidate)::pg_catalog.text, sqlc.arg(key)::bigint) AS offer_key OFFSET 0) AS c;

-- name: OfferStands :one
-- OfferStands checks on the candidate's own session whether the offer still stands.
SELECT (NOT pg_catalog.pg_try_advisory_xact_lock_shared(
    pg_catalog.hashtextextended(pg_catalog.current_setting('application_name'), sqlc.arg(key)::bigint)))::boolean AS stands;

-- name: MoveUp :one
-- MoveUp returns the place of a candidate in a lock's queue: 1 is the first, 0 means none. It
-- cancels the waits of those before it, which sends them to the end of the queue: a cancelled
-- wait begins again, and leaves nothing in the server's log. It does not cancel sessions of
-- other roles, which this role may not signal: their waits end within a heartbeat interval.
WITH queue AS MATERIALIZED (
    SELECT l.pid, a.application_name, a.usename, pg_catalog.row_number() OVER (ORDER BY l.waitstart NULLS LAST, l.pid) AS place
    FROM pg_catalog.pg_locks AS l
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND NOT l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
), successor AS MATERIALIZED (
    SELECT pg_catalog.min(queue.place) AS place FROM queue WHERE queue.application_name OPERATOR(pg_catalog.=) sqlc.arg(candidate)::pg_catalog.text
)
SELECT COALESCE(successor.place, 0)::bigint AS place, (
    SELECT pg_catalog.count(CASE WHEN queue.place OPERATOR(pg_catalog.<) successor.place AND queue.usename OPERATOR(pg_catalog.=) current_user THEN pg_catalog.pg_cancel_backend(queue.pid) END) FROM queue
)::bigint AS sent_away
FROM successor;

-- name: UnlockTo :one
-- UnlockTo is Unlock if a candidate is the first in the lock's queue: the server then grants it
-- the lock as part of the release. taken reports whether it has the lock: its wait may have
-- just timed out. If it is not the first, UnlockTo moves it up as MoveUp does.
WITH queue AS MATERIALIZED (
    SELECT l.pid, a.application_name, a.usename, pg_catalog.row_number() OVER (ORDER BY l.waitstart NULLS LAST, l.pid) AS place
    FROM pg_catalog.pg_locks AS l
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND NOT l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
), successor AS MATERIALIZED (
    SELECT pg_catalog.min(queue.place) AS place FROM queue WHERE queue.application_name OPERATOR(pg_catalog.=) sqlc.arg(candidate)::pg_catalog.text
), release AS MATERIALIZED (
    SELECT CASE WHEN successor.place OPERATOR(pg_catalog.=) 1 THEN pg_catalog.pg_advisory_unlock(sqlc.arg(key)::bigint) ELSE false END AS released
    FROM successor
)
SELECT release.released::boolean AS released,
    EXISTS (
        SELECT FROM pg_catalog.pg_locks AS l
        JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
        WHERE release.released AND a.application_name OPERATOR(pg_catalog.=) sqlc.arg(candidate)::pg_catalog.text
            AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
            AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
            AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
    )::boolean AS taken,
    (SELECT pg_catalog.count(CASE WHEN queue.place OPERATOR(pg_catalog.<) successor.place AND queue.usename OPERATOR(pg_catalog.=) current_user THEN pg_catalog.pg_cancel_backend(queue.pid) END) FROM queue
    )::bigint AS sent_away
FROM successor, release;
