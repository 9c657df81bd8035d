CREATE TABLE chosen.roster_migrations (
    version integer PRIMARY KEY,
    applied_at timestamp with time zone NOT NULL DEFAULT pg_catalog.now()
);
COMMENT ON TABLE chosen.roster_migrations IS 'pgelector: which migrations were applied to the other tables';

-- A publication changes no column that is indexed, and half of each page is left
-- free for it, so that PostgreSQL writes neither an index nor another page.
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
COMMENT ON TABLE chosen.roster_candidates IS 'pgelector: what each candidate tells of itself; pg_locks knows who leads';
COMMENT ON COLUMN chosen.roster_candidates.key IS 'of the advisory lock';
COMMENT ON COLUMN chosen.roster_candidates.since IS 'published without a break since then';
COMMENT ON COLUMN chosen.roster_candidates.health IS 'null: it tells none';
COMMENT ON COLUMN chosen.roster_candidates.expires_at IS 'if it publishes no more until then, it is silent';
COMMENT ON COLUMN chosen.roster_candidates.left_at IS 'when it said that it leaves; null if it has not';

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
COMMENT ON TABLE chosen.roster_terms IS 'pgelector: each term that was told of';
COMMENT ON COLUMN chosen.roster_terms.token IS 'the fencing token, which rises with every term';
COMMENT ON COLUMN chosen.roster_terms.ended_at IS 'as its candidate told; null if it has not: then it ended before the next token at the latest';
