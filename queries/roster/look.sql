-- name: Candidates :many
-- Candidates are the rows of these elections (keys is a JSON array of integers, as text), or of
-- all if it is empty. pg_locks decides who leads, and who holds a seat (session.SeatKey; its
-- lowest bit does not matter) and is the deputy. Metadata that others wrote is returned as
-- text, too. Times are in microseconds since 1970, because the text of a timestamp depends on
-- DateStyle, and limited to the years 1 to 9999; left_micros is 0 if the candidate has not
-- left.
WITH held AS MATERIALIZED (
    SELECT l.objsubid, ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) AS key, a.application_name AS id
    FROM pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
), seen AS (
    SELECT c.key, c.candidate_id,
        EXISTS (SELECT FROM held AS h WHERE h.objsubid OPERATOR(pg_catalog.=) 1 AND h.key OPERATOR(pg_catalog.=) c.key AND h.id OPERATOR(pg_catalog.=) c.candidate_id) AS leads,
        EXISTS (SELECT FROM held AS h WHERE h.objsubid OPERATOR(pg_catalog.=) 2 AND h.id OPERATOR(pg_catalog.=) c.candidate_id
            AND (h.key OPERATOR(pg_catalog.|) 1::bigint) OPERATOR(pg_catalog.=) (pg_catalog.concat('x', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(
                pg_catalog.convert_to('pgelector seat:', 'UTF8') OPERATOR(pg_catalog.||) pg_catalog.int8send(c.key)), 'hex'), 16))::bit(64)::bigint OPERATOR(pg_catalog.|) 1::bigint)) AS seated
    FROM chosen.roster_candidates AS c
)
SELECT c.key, c.election, c.candidate_id, c.version, c.health,
    COALESCE((SELECT pg_catalog.json_object_agg(m.key, m.value) FROM pg_catalog.jsonb_each_text(c.metadata) AS m), '{}')::pg_catalog.text AS metadata,
    (extract(epoch FROM LEAST(GREATEST(c.since, '0001-01-01 00:00:00+00'), '9999-12-30 00:00:00+00')) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS since_micros,
    (extract(epoch FROM LEAST(GREATEST(c.published_at, '0001-01-01 00:00:00+00'), '9999-12-30 00:00:00+00')) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS published_micros,
    (CASE WHEN c.left_at IS NULL THEN 0
        ELSE extract(epoch FROM LEAST(GREATEST(c.left_at, '0001-01-01 00:00:00+00'), '9999-12-30 00:00:00+00')) OPERATOR(pg_catalog.*) 1000000::numeric
    END)::bigint AS left_micros,
    (c.expires_at OPERATOR(pg_catalog.>) pg_catalog.now())::boolean AS live,
    seen.leads::boolean AS leads,
    (seen.seated AND NOT seen.leads)::boolean AS deputy
FROM chosen.roster_candidates AS c
JOIN seen ON seen.key OPERATOR(pg_catalog.=) c.key AND seen.candidate_id OPERATOR(pg_catalog.=) c.candidate_id
WHERE sqlc.arg(keys)::pg_catalog.text OPERATOR(pg_catalog.=) '[]'
    OR c.key OPERATOR(pg_catalog.=) ANY (SELECT k.key::bigint FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS k(key))
ORDER BY c.election, c.key, leads DESC, deputy DESC, live DESC, c.candidate_id;

-- name: Terms :many
-- Terms are the newest terms of each of these elections, or of all, the newest first. If a
-- candidate did not record the end of its term, the term ended when the next one began; or, if
-- there is none and the candidate does not hold the lock, at an unknown time. Times are as in
-- Candidates; ended_micros is 0 if the term goes on or its end is unknown.
WITH leaders AS MATERIALIZED (
    SELECT ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) AS key, a.application_name AS id
    FROM pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
), wanted AS (
    SELECT k.key::bigint AS key FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS k(key)
    UNION
    SELECT r.key FROM chosen.roster_terms AS r WHERE sqlc.arg(keys)::pg_catalog.text OPERATOR(pg_catalog.=) '[]'
), newest AS (
    SELECT t.key, t.election, t.token, t.candidate_id, t.elected_at, t.ended_at, t.reason, t.error,
        pg_catalog.lag(t.elected_at) OVER (PARTITION BY t.key ORDER BY t.token DESC) AS next_at
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT r.key, r.election, r.token, r.candidate_id, r.elected_at, r.ended_at, r.reason, r.error
        FROM chosen.roster_terms AS r
        WHERE r.key OPERATOR(pg_catalog.=) wanted.key
        ORDER BY r.token DESC
        LIMIT sqlc.arg(at_most)::bigint
    ) AS t
)
SELECT n.key, n.election, n.token, n.candidate_id,
    (extract(epoch FROM LEAST(GREATEST(n.elected_at, '0001-01-01 00:00:00+00'), '9999-12-30 00:00:00+00')) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS elected_micros,
    CASE WHEN COALESCE(n.ended_at, n.next_at) IS NULL THEN 0
        ELSE extract(epoch FROM LEAST(GREATEST(n.elected_at, LEAST(n.ended_at, n.next_at), '0001-01-01 00:00:00+00'), '9999-12-30 00:00:00+00')) OPERATOR(pg_catalog.*) 1000000::numeric
    END::bigint AS ended_micros,
    COALESCE(n.reason, CASE
        WHEN n.next_at IS NOT NULL THEN 'lost'
        WHEN NOT EXISTS (SELECT FROM leaders WHERE leaders.key OPERATOR(pg_catalog.=) n.key AND leaders.id OPERATOR(pg_catalog.=) n.candidate_id) THEN 'lost'
    END, '')::pg_catalog.text AS reason,
    COALESCE(n.error, '')::pg_catalog.text AS error
FROM newest AS n
ORDER BY n.election, n.key, n.token DESC;
