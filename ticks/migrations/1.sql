CREATE TABLE chosen.ticks_migrations (
    version integer PRIMARY KEY,
    applied_at timestamp with time zone NOT NULL DEFAULT pg_catalog.now()
);
COMMENT ON TABLE chosen.ticks_migrations IS 'pgelector: the applied migrations of the tables of ticks';

CREATE TABLE chosen.ticks_schedules (
    name pg_catalog.text PRIMARY KEY,
    last_at timestamp with time zone NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE chosen.ticks_schedules IS 'pgelector: a row for each schedule';
COMMENT ON COLUMN chosen.ticks_schedules.last_at IS 'ticks up to this time are done, passed over, or unfinished';

CREATE TABLE chosen.ticks_unfinished (
    name pg_catalog.text NOT NULL,
    at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    tries integer NOT NULL DEFAULT 0,
    try_at timestamp with time zone NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    error pg_catalog.text NOT NULL DEFAULT '',
    PRIMARY KEY (name, at)
);
COMMENT ON TABLE chosen.ticks_unfinished IS 'pgelector: a row for each tick that is claimed and not done yet';
COMMENT ON COLUMN chosen.ticks_unfinished.claimed_at IS 'the age of the tick counts from then';
COMMENT ON COLUMN chosen.ticks_unfinished.tries IS 'that have begun';
COMMENT ON COLUMN chosen.ticks_unfinished.try_at IS 'no try begins before';
COMMENT ON COLUMN chosen.ticks_unfinished.error IS 'of the last try that failed';
