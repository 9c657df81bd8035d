CREATE TABLE chosen.roster_migrations (
    version integer PRIMARY KEY,
    applied_at timestamp with time zone NOT NULL DEFAULT pg_catalog.now()
);
COMMENT ON TABLE chosen.roster_migrations IS 'pgelector: the applied migrations of the roster''s tables';

-- A publication changes no indexed column, and half of each page is free for it, so that
-- PostgreSQL updates the row in place (HOT).
CREATE TABLE chosen.roster_candidates (
    key bigint NOT NULL,
    candidate_id pg_catalog.text NOT NULL,
    election pg_catalog.text NOT NULL,
    version pg_catalog.text NOT NULL,
    metadata pg_catalog.jsonb NOT NULL CHECK (pg_catalog.jsonb_typeof(metadata) OPERATOR(pg_catalog.=) 'object'),
    since timestamp with time zone NOT NULL,
    health double precision,
    published_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    left_at timestamp with time zone,
    PRIMARY KEY (key, candidate_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE chosen.roster_candidates IS 'pgelector: what candidates publish; pg_locks shows who leads';
COMMENT ON COLUMN chosen.roster_candidates.key IS 'of the advisory lock';
COMMENT ON COLUMN chosen.roster_candidates.since IS 'published without a gap since then';
COMMENT ON COLUMN chosen.roster_candidates.health IS 'score of the last health check; null if unknown';
COMMENT ON COLUMN chosen.roster_candidates.expires_at IS 'the candidate is silent unless it publishes before';
COMMENT ON COLUMN chosen.roster_candidates.left_at IS 'when the candidate stopped in order; null if it has not';

CREATE TABLE chosen.roster_terms (
    key bigint NOT NULL,
    token bigint NOT NULL,
    election pg_catalog.text NOT NULL,
    candidate_id pg_catalog.text NOT NULL,
    elected_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    reason pg_catalog.text,
    error pg_catalog.text,
    PRIMARY KEY (key, token)
);
COMMENT ON TABLE chosen.roster_terms IS 'pgelector: recorded terms';
COMMENT ON COLUMN chosen.roster_terms.token IS 'the fencing token';
COMMENT ON COLUMN chosen.roster_terms.ended_at IS 'recorded by the candidate; null if it goes on or was lost: then it ended before the next token';
