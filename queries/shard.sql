-- name: TakenLocks :many
-- TakenLocks lists those of the keys, a JSON array of integers as text, whose lock somebody
-- holds exclusively. It takes each lock that is free in share mode for the statement. So it
-- reads no row of pg_locks, and costs the same however many locks the server holds.
SELECT k.key::bigint AS key
FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS k(key)
WHERE NOT pg_catalog.pg_try_advisory_xact_lock_shared(k.key::bigint);
