-- name: UnlockAndNotify :one
-- UnlockAndNotify is Unlock with a notification. The lock is free at once, and the notification
-- is sent when the statement commits, so that its receiver finds the lock free. A notification
-- need not survive a crash, so the commit is asynchronous.
SELECT CASE WHEN pg_catalog.pg_advisory_unlock(sqlc.arg(key)::bigint) THEN
    pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL
    AND pg_catalog.pg_notify(sqlc.arg(channel)::pg_catalog.text, sqlc.arg(payload)::pg_catalog.text) IS NOT NULL
ELSE false END::boolean AS released;

-- name: Notify :one
-- Notify sends a notification, also with an asynchronous commit.
SELECT (pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL
    AND pg_catalog.pg_notify(sqlc.arg(channel)::pg_catalog.text, sqlc.arg(payload)::pg_catalog.text) IS NOT NULL)::boolean AS told;
