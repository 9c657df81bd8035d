-- name: Candidates :many
-- Candidates are the rows of these elections (keys is a JSON array of integers, as text), or of
-- all if it is empty. pg_locks decides who leads, and who holds a seat (seat.Key; its
-- lowest bit does not matter) and is the deputy. Metadata that others wrote is returned as
-- text, too. (An ANY outside WHERE is a hash table, however many locks strangers hold.) Times are in microseconds since 1970, because the text of a timestamp depends on
-- DateStyle, and limited to the years 1 to 9999; left_micros is 0 if the candidate has not
-- left. expires_millis is how long after its publication a candidate expires.
WITH held AS MATERIALIZED (
    SELECT l.objsubid, ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) AS key, a.application_name AS id
    FROM pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
), seen AS (
    SELECT c.key, c.candidate_id,
        (c.key, c.candidate_id) OPERATOR(pg_catalog.=) ANY (SELECT h.key, h.id FROM held AS h WHERE h.objsubid OPERATOR(pg_catalog.=) 1 AND h.id IS NOT NULL) AS leads,
        (pg_catalog.concat('x', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(
            pg_catalog.convert_to('pgelector seat:', 'UTF8') OPERATOR(pg_catalog.||) pg_catalog.int8send(c.key)), 'hex'), 16))::bit(64)::bigint OPERATOR(pg_catalog.|) 1::bigint,
            c.candidate_id) OPERATOR(pg_catalog.=) ANY (
            SELECT h.key OPERATOR(pg_catalog.|) 1::bigint, h.id FROM held AS h WHERE h.objsubid OPERATOR(pg_catalog.=) 2 AND h.id IS NOT NULL) AS seated
    FROM chosen.roster_candidates AS c
)
SELECT c.key, c.election, c.candidate_id, c.version, c.health, c.healthy, c.minimum, COALESCE(c.why, '')::pg_catalog.text AS why,
    COALESCE((SELECT pg_catalog.json_object_agg(m.key, m.value) FROM pg_catalog.jsonb_each_text(c.health_metadata) AS m), '{}')::pg_catalog.text AS health_metadata,
    (CASE WHEN c.checked_at IS NULL THEN 0
        ELSE extract(epoch FROM LEAST(GREATEST(c.checked_at, '0001-01-01 00:00:00+00'), '9999-12-30 00:00:00+00')) OPERATOR(pg_catalog.*) 1000000::numeric
    END)::bigint AS checked_micros,
    COALESCE((SELECT pg_catalog.json_object_agg(m.key, m.value) FROM pg_catalog.jsonb_each_text(c.metadata) AS m), '{}')::pg_catalog.text AS metadata,
    (extract(epoch FROM LEAST(GREATEST(c.since, '0001-01-01 00:00:00+00'), '9999-12-30 00:00:00+00')) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS since_micros,
    (extract(epoch FROM LEAST(GREATEST(c.published_at, '0001-01-01 00:00:00+00'), '9999-12-30 00:00:00+00')) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS published_micros,
    (CASE WHEN c.left_at IS NULL THEN 0
        ELSE extract(epoch FROM LEAST(GREATEST(c.left_at, '0001-01-01 00:00:00+00'), '9999-12-30 00:00:00+00')) OPERATOR(pg_catalog.*) 1000000::numeric
    END)::bigint AS left_micros,
    (c.expires_at OPERATOR(pg_catalog.>) pg_catalog.now())::boolean AS live,
    (extract(epoch FROM LEAST(GREATEST(LEAST(GREATEST(c.expires_at, '0001-01-01 00:00:00+00'), '9999-12-30 00:00:00+00')
        OPERATOR(pg_catalog.-) LEAST(GREATEST(c.published_at, '0001-01-01 00:00:00+00'), '9999-12-30 00:00:00+00'), '0'::interval), '1 day'::interval)) OPERATOR(pg_catalog.*) 1000::numeric)::bigint AS expires_millis,
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
        WHEN NOT (n.key, n.candidate_id) OPERATOR(pg_catalog.=) ANY (SELECT leaders.key, leaders.id FROM leaders WHERE leaders.id IS NOT NULL) THEN 'lost'
    END, '')::pg_catalog.text AS reason,
    COALESCE(n.error, '')::pg_catalog.text AS error
FROM newest AS n
ORDER BY n.election, n.key, n.token DESC;

-- name: Publish :exec
-- Publish writes the candidates of one process, a JSON array of objects, of which checked_micros is how
-- long ago the health was checked. They expire after
-- expires_millis unless they are published again. A crash may lose the last publication
-- without harm, so the commit is asynchronous.
INSERT INTO chosen.roster_candidates AS c
    (key, candidate_id, election, version, metadata, since, health, healthy, minimum, why, health_metadata, checked_at, published_at, expires_at)
SELECT r.key, r.candidate_id, r.election, r.version, r.metadata, pg_catalog.now(), r.health, r.healthy, r.minimum, r.why, r.health_metadata,
    pg_catalog.now() OPERATOR(pg_catalog.-) (r.checked_micros::double precision OPERATOR(pg_catalog.*) '1 microsecond'::interval), pg_catalog.now(),
    pg_catalog.now() OPERATOR(pg_catalog.+) (sqlc.arg(expires_millis)::bigint::double precision OPERATOR(pg_catalog.*) '1 millisecond'::interval)
FROM pg_catalog.json_to_recordset(sqlc.arg(candidates)::pg_catalog.text::pg_catalog.json)
    AS r(key bigint, candidate_id pg_catalog.text, election pg_catalog.text, version pg_catalog.text, metadata pg_catalog.jsonb, health double precision, healthy boolean,
        minimum double precision, why pg_catalog.text, health_metadata pg_catalog.jsonb, checked_micros bigint)
WHERE pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL
ON CONFLICT (key, candidate_id) DO UPDATE SET
    election = excluded.election, version = excluded.version, metadata = excluded.metadata,
    since = CASE WHEN c.left_at IS NULL AND c.expires_at OPERATOR(pg_catalog.>) pg_catalog.now() THEN c.since ELSE excluded.since END,
    health = excluded.health, healthy = excluded.healthy, minimum = excluded.minimum, why = excluded.why,
    health_metadata = excluded.health_metadata, checked_at = excluded.checked_at, published_at = excluded.published_at, expires_at = excluded.expires_at, left_at = NULL;

-- name: Leave :exec
-- Leave marks candidates, a JSON array of objects with key and candidate_id, as left.
UPDATE chosen.roster_candidates AS c SET left_at = pg_catalog.now(), expires_at = pg_catalog.now()
FROM pg_catalog.json_to_recordset(sqlc.arg(candidates)::pg_catalog.text::pg_catalog.json) AS r(key bigint, candidate_id pg_catalog.text)
WHERE c.key OPERATOR(pg_catalog.=) r.key AND c.candidate_id OPERATOR(pg_catalog.=) r.candidate_id AND c.left_at IS NULL;

-- name: RecordTerms :exec
-- RecordTerms writes terms, a JSON array of objects. It may be repeated, late or out of order:
-- it never overwrites the recorded end of a term. Times are given as microseconds ago, so that
-- the clock is the server's.
INSERT INTO chosen.roster_terms AS t (key, token, election, candidate_id, elected_at, ended_at, reason, error)
SELECT r.key, r.token, r.election, r.candidate_id,
    pg_catalog.now() OPERATOR(pg_catalog.-) (r.elected_micros::double precision OPERATOR(pg_catalog.*) '1 microsecond'::interval),
    pg_catalog.now() OPERATOR(pg_catalog.-) (r.ended_micros::double precision OPERATOR(pg_catalog.*) '1 microsecond'::interval),
    r.reason, r.error
FROM pg_catalog.json_to_recordset(sqlc.arg(terms)::pg_catalog.text::pg_catalog.json)
    AS r(key bigint, token bigint, election pg_catalog.text, candidate_id pg_catalog.text, elected_micros bigint, ended_micros bigint, reason pg_catalog.text, error pg_catalog.text)
ON CONFLICT (key, token) DO UPDATE SET ended_at = excluded.ended_at, reason = excluded.reason, error = excluded.error
WHERE t.ended_at IS NULL AND excluded.ended_at IS NOT NULL;

-- name: RemoveCandidates :execrows
-- RemoveCandidates removes at most at_most candidates that expired more than age_seconds ago. It
-- skips rows that another session removes.
WITH old AS MATERIALIZED (
    SELECT c.key, c.candidate_id FROM chosen.roster_candidates AS c
    WHERE c.expires_at OPERATOR(pg_catalog.<) (pg_catalog.now() OPERATOR(pg_catalog.-) (sqlc.arg(age_seconds)::bigint::double precision OPERATOR(pg_catalog.*) '1 second'::interval))
    LIMIT sqlc.arg(at_most)::bigint FOR UPDATE SKIP LOCKED
)
DELETE FROM chosen.roster_candidates AS c USING old WHERE c.key OPERATOR(pg_catalog.=) old.key AND c.candidate_id OPERATOR(pg_catalog.=) old.candidate_id;

-- name: RemoveTerms :execrows
-- RemoveTerms removes at most at_most terms that ended more than age_seconds ago, or that are not
-- among the newest of their election. It keeps a current term of any age. A term whose end
-- was not recorded goes with its election.
WITH held AS MATERIALIZED (
    SELECT ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) AS key
    FROM pg_catalog.pg_locks AS l
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
), placed AS (
    SELECT t.key, t.token, t.elected_at, COALESCE(t.ended_at, pg_catalog.lag(t.elected_at) OVER newest_first) AS ended_at,
        pg_catalog.row_number() OVER newest_first AS place
    FROM chosen.roster_terms AS t
    WINDOW newest_first AS (PARTITION BY t.key ORDER BY t.token DESC)
), old AS MATERIALIZED (
    SELECT p.key, p.token FROM placed AS p
    WHERE p.place OPERATOR(pg_catalog.>) sqlc.arg(keep)::bigint
        OR COALESCE(p.ended_at, CASE WHEN NOT p.key OPERATOR(pg_catalog.=) ANY (SELECT held.key FROM held) THEN p.elected_at END)
            OPERATOR(pg_catalog.<) (pg_catalog.now() OPERATOR(pg_catalog.-) (sqlc.arg(age_seconds)::bigint::double precision OPERATOR(pg_catalog.*) '1 second'::interval))
    LIMIT sqlc.arg(at_most)::bigint
), mine AS MATERIALIZED (
    SELECT t.key, t.token FROM chosen.roster_terms AS t JOIN old ON old.key OPERATOR(pg_catalog.=) t.key AND old.token OPERATOR(pg_catalog.=) t.token
    FOR UPDATE OF t SKIP LOCKED
)
DELETE FROM chosen.roster_terms AS t USING mine WHERE t.key OPERATOR(pg_catalog.=) mine.key AND t.token OPERATOR(pg_catalog.=) mine.token;

-- name: Installed :one
-- Installed reports whether a schema of that name exists, and a roster in it.
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname OPERATOR(pg_catalog.=) sqlc.arg(schema)::pg_catalog.text)::boolean AS has_schema,
    EXISTS (
        SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
        WHERE n.nspname OPERATOR(pg_catalog.=) sqlc.arg(schema)::pg_catalog.text AND c.relname OPERATOR(pg_catalog.=) 'roster_migrations'
    )::boolean AS has_roster;

-- name: Version :one
-- Version is the newest applied migration.
SELECT COALESCE(pg_catalog.max(m.version), 0)::integer AS version FROM chosen.roster_migrations AS m;

-- name: RecordVersion :exec
-- RecordVersion records that a migration was applied.
INSERT INTO chosen.roster_migrations (version) VALUES (sqlc.arg(version)::integer);

-- name: LockMigrations :exec
-- LockMigrations lets one process at a time migrate a schema, until its transaction ends. The
-- lock is in the key space of two integers, which no election uses.
SELECT pg_catalog.pg_advisory_xact_lock(sqlc.arg(high)::integer, sqlc.arg(low)::integer);

-- name: ReadBytes :one
-- ReadBytes has the server send texts as they are stored, until the end of the transaction: one that
-- has no equivalent in the client's encoding would keep all others from being read.
SELECT pg_catalog.set_config('client_encoding', 'SQL_ASCII', true)::pg_catalog.text AS encoding;
