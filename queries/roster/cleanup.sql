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
        OR COALESCE(p.ended_at, CASE WHEN NOT EXISTS (SELECT FROM held WHERE held.key OPERATOR(pg_catalog.=) p.key) THEN p.elected_at END)
            OPERATOR(pg_catalog.<) (pg_catalog.now() OPERATOR(pg_catalog.-) (sqlc.arg(age_seconds)::bigint::double precision OPERATOR(pg_catalog.*) '1 second'::interval))
    LIMIT sqlc.arg(at_most)::bigint
), mine AS MATERIALIZED (
    SELECT t.key, t.token FROM chosen.roster_terms AS t JOIN old ON old.key OPERATOR(pg_catalog.=) t.key AND old.token OPERATOR(pg_catalog.=) t.token
    FOR UPDATE OF t SKIP LOCKED
)
DELETE FROM chosen.roster_terms AS t USING mine WHERE t.key OPERATOR(pg_catalog.=) mine.key AND t.token OPERATOR(pg_catalog.=) mine.token;
