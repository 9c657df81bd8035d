-- name: CommitSynchronously :one
-- CommitSynchronously writes one small record whose commit waits for the synchronous standbys.
-- The statement is a transaction of its own, on a connection whose synchronous_commit is on.
-- The server answers when the standbys have acknowledged the commit, or when somebody cancels
-- the wait.
--
-- The outcome is 'standby' on a server in recovery. It is 'elsewhere' if nobody holds the
-- session's lock of two random integers: then this is another server than the session's, or
-- the session has ended. It is 'waiting' if another commit of the same scope still waits: its
-- transaction keeps its lock until the standbys acknowledge it, even if its client is gone,
-- so commits do not pile up. Otherwise it is 'committed', and lsn is the start of the record,
-- not '0/0'.
--
-- The setting, and when this backend loaded it, are those before the commit: see
-- SynchronousStandbys.
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
    END, '0/0')::pg_catalog.text AS lsn,
    pg_catalog.current_setting('synchronous_standby_names')::pg_catalog.text AS standby_names,
    (extract(epoch FROM pg_catalog.pg_conf_load_time()) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS loaded
FROM attempt;

-- name: SynchronousStandbys :one
-- SynchronousStandbys returns what decides whether a commit waits for every standby that can
-- be promoted: the setting, when this backend loaded it, in microseconds since 1970, and the
-- standbys that stream from this server, as a JSON array of objects with name and behind.
-- behind means that the standby has not flushed the WAL up to lsn, or has not said yet how far
-- it is (as a base backup never does). It is null if lsn is '0/0', or if this role may not see
-- it, nor the state (pg_read_all_stats may). The timeline is 0 in recovery; Confirm explains
-- its source. A timeline's number may be used again if one was discarded, but a server is
-- promoted at most once between two starts. A backend applies a reloaded setting between two of
-- its statements: if the load is the same before and after a commit, the setting did not change
-- meanwhile.
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
            CASE WHEN sqlc.arg(lsn)::pg_catalog.text OPERATOR(pg_catalog.<>) '0/0' AND r.state IS NOT NULL
                THEN COALESCE(r.flush_lsn OPERATOR(pg_catalog.<) sqlc.arg(lsn)::pg_catalog.text::pg_catalog.pg_lsn, true) END))
        FROM pg_catalog.pg_stat_replication AS r
    ), '[]'::pg_catalog.json)::pg_catalog.text AS senders;
