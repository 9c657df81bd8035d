-- name: Publish :exec
-- Publish writes the candidates of one process, a JSON array of objects. They expire after
-- expires_millis unless they are published again. A crash may lose the last publication
-- without harm, so the commit is asynchronous.
INSERT INTO chosen.roster_candidates AS c
    (key, candidate_id, election, version, metadata, since, health, published_at, expires_at)
SELECT r.key, r.candidate_id, r.election, r.version, r.metadata, pg_catalog.now(), r.health, pg_catalog.now(),
    pg_catalog.now() OPERATOR(pg_catalog.+) (sqlc.arg(expires_millis)::bigint::double precision OPERATOR(pg_catalog.*) '1 millisecond'::interval)
FROM pg_catalog.json_to_recordset(sqlc.arg(candidates)::pg_catalog.text::pg_catalog.json)
    AS r(key bigint, candidate_id pg_catalog.text, election pg_catalog.text, version pg_catalog.text, metadata pg_catalog.jsonb, health double precision)
WHERE pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL
ON CONFLICT (key, candidate_id) DO UPDATE SET
    election = excluded.election, version = excluded.version, metadata = excluded.metadata,
    since = CASE WHEN c.left_at IS NULL AND c.expires_at OPERATOR(pg_catalog.>) pg_catalog.now() THEN c.since ELSE excluded.since END,
    health = excluded.health, published_at = excluded.published_at, expires_at = excluded.expires_at, left_at = NULL;

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
