-- name: CommitSynchronously :one
-- CommitSynchronously writes one small record whose commit waits for the synchronous
-- standbys: the statement is a transaction of its own, on a connection whose
-- synchronous_commit is on. It is answered when they have acknowledged the commit, or
-- when somebody has cancelled the wait, to which the server answers as if they had.
--
-- The outcome is 'standby' on a server in recovery. It is 'elsewhere' if nobody holds
-- the session's lock, of two random integers: then this is another server than the session's, or
-- the session has ended. It is 'waiting' if another commit of the same scope still
-- waits: its transaction keeps its lock until the standbys acknowledge it, also when
-- its client is gone, so no second one piles up behind it. Else it is 'committed', and
-- lsn is where the record begins.
--
-- The setting and the time at which this backend loaded it are as of before the commit:
-- see SynchronousStandbys.
WITH attempt AS MATERIALIZED (
    SELECT CASE
        WHEN pg_catalog.pg_is_in_recovery() THEN 'standby'
        WHEN pg_catalog.pg_try_advisory_xact_lock_shared(sqlc.arg(session_high)::integer, sqlc.arg(session_low)::integer) THEN 'elsewhere'
        WHEN NOT pg_catalog.pg_try_advisory_xact_lock(sqlc.arg(scope_high)::integer, sqlc.arg(scope_low)::integer) THEN 'waiting'
        ELSE 'committed'
    END AS outcome
)
SELECT
    attempt.outcome::pg_catalog.text AS outcome,
    pg_catalog.pg_backend_pid()::integer AS pid,
    COALESCE(CASE WHEN attempt.outcome OPERATOR(pg_catalog.=) 'committed' THEN
        pg_catalog.pg_logical_emit_message(true, 'pgelector', ''::pg_catalog.text)::pg_catalog.text
    END, '')::pg_catalog.text AS lsn,
    pg_catalog.current_setting('synchronous_standby_names')::pg_catalog.text AS standby_names,
    (extract(epoch FROM pg_catalog.pg_conf_load_time()) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS loaded
FROM attempt;

-- name: SynchronousStandbys :one
-- SynchronousStandbys tells what decides whether a commit waits for every standby that
-- can be promoted: the setting, when this backend loaded it, in microseconds since 1970,
-- and who streams from this server, as a JSON array of objects with name and behind.
-- behind says that the standby has not flushed the log up to lsn; it is null if lsn is
-- '0/0', or if this role may not see that (pg_read_all_stats may). The timeline is 0 in
-- recovery; see Confirm for where it is read. The number of a timeline may be used again,
-- if one was discarded, but a server is promoted at most once between two starts. A setting that is reloaded takes effect in
-- each backend between two of its statements: if the same load is seen before a commit
-- and after it, the setting has not changed meanwhile.
SELECT
    pg_catalog.pg_backend_pid()::integer AS pid,
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0
        ELSE pg_catalog.concat('x', pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint
    END::bigint AS timeline,
    (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS started,
    pg_catalog.current_setting('synchronous_standby_names')::pg_catalog.text AS standby_names,
    (extract(epoch FROM pg_catalog.pg_conf_load_time()) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS loaded,
    COALESCE((
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('name', r.application_name, 'behind',
            CASE WHEN sqlc.arg(lsn)::pg_catalog.text OPERATOR(pg_catalog.<>) '0/0' THEN r.flush_lsn OPERATOR(pg_catalog.<) sqlc.arg(lsn)::pg_catalog.text::pg_catalog.pg_lsn END))
        FROM pg_catalog.pg_stat_replication AS r
    ), '[]'::pg_catalog.json)::pg_catalog.text AS senders;
