ALTER TABLE chosen.roster_candidates ADD COLUMN minimum double precision, ADD COLUMN why pg_catalog.text,
    ADD COLUMN health_metadata pg_catalog.jsonb CHECK (pg_catalog.jsonb_typeof(health_metadata) OPERATOR(pg_catalog.=) 'object'),
    ADD COLUMN checked_at timestamp with time zone;
COMMENT ON COLUMN chosen.roster_candidates.minimum IS 'the lowest good score; null if unknown';
COMMENT ON COLUMN chosen.roster_candidates.why IS 'why the health is what it is; null if nobody said';
COMMENT ON COLUMN chosen.roster_candidates.health_metadata IS 'what the health is about; null if nobody said';
COMMENT ON COLUMN chosen.roster_candidates.checked_at IS 'when the health was checked or reported; null if unknown';
