-- name: PrepareWait :one
-- PrepareWait prepares a session for WaitLock, which takes no arguments: our own parameters
-- pgelector.role, pgelector.key and pgelector.wait say who waits, for what and how long. If
-- in_recovery is true, nothing is set, and the caller must refuse the server. If inside is
-- true, the settings last until the end of the transaction. It marks the transaction (Confirm)
-- for InTransaction and WaitLock, too, and takes the lock that tells the lease (TryLock). started
-- is as in TryTransactionLock, and so is mark, which is empty if nothing is set.
SELECT pg_catalog.pg_backend_pid()::integer AS pid, pg_catalog.pg_is_in_recovery()::boolean AS in_recovery,
    CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN (
        SELECT CASE WHEN pg_catalog.count(CASE WHEN sqlc.arg(inside)::boolean
                    THEN pg_catalog.pg_try_advisory_xact_lock_shared(1530767677, s.value::integer)
                    ELSE pg_catalog.pg_try_advisory_lock_shared(318473925, s.value::integer) END)
                    FILTER (WHERE s.name OPERATOR(pg_catalog.=) 'idle_session_timeout') IS NOT NULL
                AND pg_catalog.count(pg_catalog.set_config(s.name, s.value, sqlc.arg(inside)::boolean)) IS NOT NULL
            THEN pg_catalog.set_config('pgelector.transaction', extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text, true) END
        FROM pg_catalog.json_to_recordset(sqlc.arg(settings)::pg_catalog.text::pg_catalog.json) AS s(name pg_catalog.text, value pg_catalog.text)
        WHERE pg_catalog.starts_with(s.name, 'pgelector.') OR pg_catalog.current_setting(s.name, true) IS NOT NULL
    ) ELSE '' END::pg_catalog.text AS mark,
    extract(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.text AS started;

-- name: WaitLock :exec
-- WaitLock waits in a lock's queue for a bounded time, because a waiting statement holds back
-- xmin. A DO block that handles lock_not_available leaves no ERROR in the server's log, as a
-- plain lock_timeout would. It handles query_canceled too, because both drivers cancel the
-- statement when its context ends. The server signals a cancel twice, to the process and to
-- its group, so it waits a moment for the second signal. A client that has gone meanwhile is
-- not looked for, which would log that. The caller reads from pg_locks whether the lock was
-- granted.
--
-- The wait is shorter than what the server would log, by the settings as they are now. If
-- that leaves a deputy less than 100 ms, it only tries the lock: it waits 1 ms. Inside a
-- transaction, the lock lasts until its end.
DO $$
BEGIN
    DECLARE
        waiter pg_catalog.text := pg_catalog.current_setting('pgelector.role');
        inside boolean := COALESCE(pg_catalog.current_setting('pgelector.transaction', true), '') OPERATOR(pg_catalog.=)
            extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text;
        key bigint := pg_catalog.current_setting('pgelector.key')::bigint;
        bound numeric := LEAST(
            pg_catalog.current_setting('pgelector.wait')::numeric,
            CASE WHEN pg_catalog.current_setting('log_lock_waits')::boolean
                THEN extract(epoch FROM pg_catalog.current_setting('deadlock_timeout')::interval) OPERATOR(pg_catalog.*) 800::numeric END,
            (SELECT pg_catalog.min(logged.seconds) OPERATOR(pg_catalog.*) 800::numeric
                FROM (VALUES (extract(epoch FROM pg_catalog.current_setting('log_min_duration_statement')::interval)),
                    (extract(epoch FROM pg_catalog.current_setting('log_min_duration_sample')::interval))) AS logged(seconds)
                WHERE logged.seconds OPERATOR(pg_catalog.>) 0::numeric));
    BEGIN
        PERFORM pg_catalog.set_config('lock_timeout', CASE
            WHEN bound OPERATOR(pg_catalog.>=) 100::numeric THEN bound
            WHEN waiter OPERATOR(pg_catalog.=) 'successor' THEN 100::numeric
            ELSE 1::numeric END::bigint::pg_catalog.text, true);
        IF inside THEN
            PERFORM pg_catalog.pg_advisory_xact_lock(key);
        ELSE
            PERFORM pg_catalog.pg_advisory_lock(key);
        END IF;
    EXCEPTION
        WHEN lock_not_available THEN NULL;
        WHEN query_canceled THEN -- the handler below undoes the setting
            PERFORM pg_catalog.set_config('client_connection_check_interval', '0', true), pg_catalog.pg_sleep(0.01::double precision);
            RAISE;
    END;
EXCEPTION WHEN query_canceled THEN
    NULL;
END $$;
