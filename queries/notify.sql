-- name: UnlockAndNotify :one
-- UnlockAndNotify is Unlock, and tells those who listen. The lock is free at once,
-- and the notification goes out as the statement commits, so whoever hears of it
-- finds the lock free. A notification is nothing to keep over a crash, so its commit
-- does not wait for the disk.
SELECT CASE WHEN pg_catalog.pg_advisory_unlock(sqlc.arg(key)::bigint) THEN
    pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL
    AND pg_catalog.pg_notify(sqlc.arg(channel)::pg_catalog.text, sqlc.arg(payload)::pg_catalog.text) IS NOT NULL
ELSE false END::boolean AS released;

-- name: Notify :one
-- Notify tells those who listen, and does not wait for the disk either.
SELECT (pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL
    AND pg_catalog.pg_notify(sqlc.arg(channel)::pg_catalog.text, sqlc.arg(payload)::pg_catalog.text) IS NOT NULL)::boolean AS told;
