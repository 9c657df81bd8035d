-- name: UnlockPair :one
-- UnlockPair is Unlock for a lock of two integers. A leader offers the election's lock to one
-- candidate by such a lock (TryPair), which only that candidate tries in its own attempts.
SELECT pg_catalog.pg_advisory_unlock(sqlc.arg(high)::integer, sqlc.arg(low)::integer)::boolean AS released;

-- name: HolderOffers :one
-- HolderOffers checks that one session holds both the election's lock and that of the offer,
-- whose two integers are the halves of offer: anybody can take the latter.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_locks AS l
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.pid IS NOT NULL
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=)
            CASE WHEN l.objsubid OPERATOR(pg_catalog.=) 1 THEN sqlc.arg(key)::bigint ELSE sqlc.arg(offer)::bigint END
    GROUP BY l.pid
    HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) 2
)::boolean AS offers;

-- name: UnlockTo :one
-- UnlockTo reports whether a candidate is the first in the lock's queue. If it is, and
-- release is true, UnlockTo is Unlock: the server grants the candidate the lock as part of
-- it. taken reports whether the candidate has the lock: its wait may have just timed out. Then
-- UnlockTo takes the lock back, and released is true only if another was sooner.
WITH queue AS MATERIALIZED (
    SELECT a.application_name
    FROM pg_catalog.pg_locks AS l
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND NOT l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
    ORDER BY l.waitstart NULLS LAST, l.pid
    LIMIT 1
), place AS MATERIALIZED (
    SELECT COALESCE((SELECT queue.application_name OPERATOR(pg_catalog.=) sqlc.arg(candidate)::pg_catalog.text FROM queue), false) AS first
), release AS MATERIALIZED (
    SELECT place.first, CASE WHEN place.first AND sqlc.arg(release)::boolean THEN pg_catalog.pg_advisory_unlock(sqlc.arg(key)::bigint) ELSE false END AS released
    FROM place
), handed AS MATERIALIZED (
    SELECT release.first, release.released,
        EXISTS (
            SELECT FROM pg_catalog.pg_locks AS l
            JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
            WHERE release.released AND a.application_name OPERATOR(pg_catalog.=) sqlc.arg(candidate)::pg_catalog.text
                AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
                AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
                AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
        ) AS taken
    FROM release
)
SELECT handed.first::boolean AS first,
    CASE WHEN handed.released AND NOT handed.taken THEN NOT pg_catalog.pg_try_advisory_lock(sqlc.arg(key)::bigint) ELSE handed.released END::boolean AS released,
    handed.taken::boolean AS taken
FROM handed;

-- name: Ring :one
-- Ring makes a request to a leader, in a transaction of the one who asks: it shares the
-- request's lock, and then the bell of the leader's session, which that session's next Ping
-- finds. Both end with the transaction. rung is false if a Ping was looking at this moment.
-- The two integers of a bell are a constant (inbox.Bell) and the backend's process id.
--
-- The leader's session answers by a lock of two integers, the halves of answer, that is named
-- after the transaction (inbox.AnswerKey): answered is true if that session, and no other, holds it.
SELECT CASE
    WHEN NOT pg_catalog.pg_try_advisory_xact_lock_shared(sqlc.arg(request_high)::integer, sqlc.arg(request_low)::integer) THEN false
    ELSE pg_catalog.pg_try_advisory_xact_lock_shared(983268819, sqlc.arg(pid)::integer)
END::boolean AS rung, pg_catalog.pg_backend_pid()::integer AS own_pid,
COALESCE((
    SELECT l.virtualtransaction FROM pg_catalog.pg_locks AS l WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() LIMIT 1
), '')::pg_catalog.text AS transaction,
EXISTS (
    SELECT FROM pg_catalog.pg_locks AS l
    WHERE l.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
        AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 2
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(answer)::bigint
)::boolean AS answered;

-- name: Requests :many
-- Requests are the requests of those who ring the bell of the session with that pid: the key
-- of each lock that they share in the key space of two integers. transaction identifies a
-- request. Every role sees application_name, usename and pid; client_addr is empty for most
-- others. Key 0 is of those who wait for the end of the session's transaction, as CREATE
-- INDEX CONCURRENTLY does if it has seen a snapshot of it.
--
-- Others choose how many locks there are. So it reads pg_locks once, and has no join whose plan
-- would hang on an estimate: an ANY within CASE is a hash table. Of more than a thousand locks it
-- returns those of the sessions that share the fewest; a session that makes a request shares one, or with its
-- priority (TellPriority), which is listed too, two. A prepared
-- transaction, which has no pid, makes none. On a server that was not started at that time, as
-- TryTransactionLock has it, there are none: its process ids are others.
WITH locks AS MATERIALIZED (
    SELECT l.virtualtransaction, l.pid, l.virtualxid, l.granted, l.classid::bigint AS high, l.objid::bigint AS low
    FROM pg_catalog.pg_locks AS l
    WHERE l.pid IS NOT NULL AND CASE WHEN l.locktype OPERATOR(pg_catalog.=) 'virtualxid' THEN true
        ELSE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ShareLock' AND l.objsubid OPERATOR(pg_catalog.=) 2
            AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    END
), asked AS MATERIALIZED (
    SELECT l.virtualtransaction, l.pid, COALESCE((l.high OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.low, 0::bigint) AS key
    FROM locks AS l
    WHERE CASE
        WHEN l.virtualxid IS NOT NULL THEN NOT l.granted AND l.virtualxid OPERATOR(pg_catalog.=) ANY (
            SELECT own.virtualxid FROM locks AS own
            WHERE own.virtualxid IS NOT NULL AND own.granted AND own.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer)
        WHEN l.high OPERATOR(pg_catalog.<>) 983268819::bigint AND (l.high OPERATOR(pg_catalog.|) l.low) OPERATOR(pg_catalog.<>) 0::bigint
        THEN l.virtualtransaction OPERATOR(pg_catalog.=) ANY (
            SELECT bell.virtualtransaction FROM locks AS bell
            WHERE bell.high OPERATOR(pg_catalog.=) 983268819::bigint AND bell.low OPERATOR(pg_catalog.=) sqlc.arg(pid)::bigint)
        ELSE false
    END
    ORDER BY pg_catalog.count(*) OVER (PARTITION BY l.pid), l.pid
    LIMIT 1000
)
SELECT
    l.virtualtransaction::pg_catalog.text AS transaction,
    l.key::bigint AS key,
    l.pid::integer AS pid,
    COALESCE(a.application_name, '')::pg_catalog.text AS application_name,
    COALESCE(a.usename, '')::pg_catalog.text AS usename,
    COALESCE(pg_catalog.host(a.client_addr), '')::pg_catalog.text AS client_addr
FROM asked AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
WHERE extract(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.text OPERATOR(pg_catalog.=) sqlc.arg(started)::pg_catalog.text;

-- name: Notify :one
-- Notify sends notifications: payloads is a JSON array of texts. They need not survive a crash,
-- so the commit is asynchronous.
SELECT (pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL
    AND pg_catalog.bool_and(pg_catalog.pg_notify(sqlc.arg(channel)::pg_catalog.text, p.payload) IS NOT NULL))::boolean AS told
FROM pg_catalog.json_array_elements_text(sqlc.arg(payloads)::pg_catalog.text::pg_catalog.json) AS p(payload);
