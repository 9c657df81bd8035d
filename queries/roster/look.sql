-- name: Candidates :many
-- Candidates are the rows of these elections (keys is a JSON array of integers,
-- as text), or of all if it is empty. That one leads is what pg_locks shows, and
-- not what it has told. Metadata that others than this package have written is
-- told as text, too.
WITH leaders AS MATERIALIZED (
    SELECT ((l.classid::bigint << 32) | l.objid::bigint) AS key, a.application_name AS id
    FROM pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock' AND l.objsubid = 1
        AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
)
SELECT c.key, c.election, c.candidate_id, c.version, c.since, c.health,
    COALESCE((SELECT json_object_agg(m.key, m.value) FROM pg_catalog.jsonb_each_text(c.metadata) AS m), '{}')::text AS metadata,
    c.published_at, c.left_at, (c.expires_at > now())::boolean AS live,
    EXISTS (SELECT FROM leaders WHERE leaders.key = c.key AND leaders.id = c.candidate_id)::boolean AS leads
FROM chosen.roster_candidates AS c
WHERE sqlc.arg(keys)::text = '[]'
    OR c.key IN (SELECT k.key::bigint FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::text::json) AS k(key))
ORDER BY c.election, c.key, leads DESC, live DESC, c.candidate_id;

-- name: Terms :many
-- Terms are the newest terms of each of these elections, or of all, the newest
-- first. A term whose candidate never told of its end has ended when the next one
-- began, or else, if its candidate does not hold the lock, nobody knows when.
-- ended_micros is in microseconds since 1970, 0 if the term goes on, or that is
-- not known.
WITH leaders AS MATERIALIZED (
    SELECT ((l.classid::bigint << 32) | l.objid::bigint) AS key, a.application_name AS id
    FROM pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock' AND l.objsubid = 1
        AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
), wanted AS (
    SELECT k.key::bigint AS key FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::text::json) AS k(key)
    UNION
    SELECT r.key FROM chosen.roster_terms AS r WHERE sqlc.arg(keys)::text = '[]'
), newest AS (
    SELECT t.key, t.election, t.token, t.candidate_id, t.elected_at, t.ended_at, t.reason, t.error,
        lag(t.elected_at) OVER (PARTITION BY t.key ORDER BY t.token DESC) AS next_at
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT r.key, r.election, r.token, r.candidate_id, r.elected_at, r.ended_at, r.reason, r.error
        FROM chosen.roster_terms AS r
        WHERE r.key = wanted.key
        ORDER BY r.token DESC
        LIMIT sqlc.arg(at_most)::bigint
    ) AS t
)
SELECT n.key, n.election, n.token, n.candidate_id, n.elected_at,
    CASE WHEN COALESCE(n.ended_at, n.next_at) IS NULL THEN 0
        ELSE extract(epoch FROM GREATEST(n.elected_at, LEAST(n.ended_at, n.next_at))) * 1000000
    END::bigint AS ended_micros,
    COALESCE(n.reason, CASE
        WHEN n.next_at IS NOT NULL THEN 'lost'
        WHEN NOT EXISTS (SELECT FROM leaders WHERE leaders.key = n.key AND leaders.id = n.candidate_id) THEN 'lost'
    END, '')::text AS reason,
    COALESCE(n.error, '')::text AS error
FROM newest AS n
ORDER BY n.election, n.key, n.token DESC;
