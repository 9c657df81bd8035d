-- name: PrepareWait :one
-- PrepareWait prepares a session for WaitLock or WaitPair. Those take no arguments: our own
-- parameters pgelector.key and pgelector.wait say what to wait for and how long. If
-- in_recovery is true, nothing is set, and the caller must refuse the server.
-- pgelector.transaction is for InTransaction and Confirm.
SELECT pg_catalog.pg_backend_pid()::integer AS pid, pg_catalog.pg_is_in_recovery()::boolean AS in_recovery,
    CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN (
        SELECT CASE WHEN pg_catalog.set_config('pgelector.transaction', 'open', true) IS NOT NULL
            THEN pg_catalog.count(pg_catalog.set_config(s.name, s.value, false)) END
        FROM pg_catalog.json_to_recordset(sqlc.arg(settings)::pg_catalog.text::pg_catalog.json) AS s(name pg_catalog.text, value pg_catalog.text)
        WHERE pg_catalog.starts_with(s.name, 'pgelector.') OR pg_catalog.current_setting(s.name, true) IS NOT NULL
    ) ELSE 0 END::bigint AS applied;

-- name: WaitLock :exec
-- WaitLock waits in the lock's queue, first come, first served, for a bounded time, because a
-- waiting statement holds back xmin. A DO block that handles lock_not_available leaves no
-- ERROR in the server's log, as a plain lock_timeout would. It handles query_canceled too,
-- because both drivers cancel the statement when its context ends. (The server signals a
-- cancel twice, to the process and to its group, and the second signal may come late.) The
-- caller reads from pg_locks whether the lock was granted.
DO $$
BEGIN
    BEGIN
        PERFORM pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('pgelector.wait'), true);
        PERFORM pg_catalog.pg_advisory_lock(pg_catalog.current_setting('pgelector.key')::bigint);
    EXCEPTION
        WHEN lock_not_available THEN NULL;
        WHEN query_canceled THEN PERFORM pg_catalog.pg_sleep(0.01::double precision);
    END;
EXCEPTION WHEN query_canceled THEN
    NULL;
END $$;
