-- name: TakenLocks :many
-- TakenLocks lists those of the keys, a JSON array of integers as text, whose lock somebody
-- holds exclusively. It takes each lock that is free in share mode, and lets it go at once: a
-- client that freezes in the transaction keeps none. So it reads no row of pg_locks, and costs
-- the same however many locks the server holds.
SELECT k.key::bigint AS key
FROM pg_catalog.json_array_elements_text(sqlc.arg(keys)::pg_catalog.text::pg_catalog.json) AS k(key)
WHERE NOT CASE WHEN pg_catalog.pg_try_advisory_lock_shared(k.key::bigint) THEN pg_catalog.pg_advisory_unlock_shared(k.key::bigint) ELSE false END;
