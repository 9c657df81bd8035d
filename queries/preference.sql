-- name: TellPriority :one
-- TellPriority tells the priority of a candidate by a lock of two integers that its session
-- shares, or with inside its transaction: a constant, made as in TryLock of "pgelector
-- priority", and the priority. A leader takes the lock at the grant, for Holder and
-- AdvisoryLocks. Who asks a leader to transfer its lock takes it with the request, for
-- Requests. told is false if somebody holds the lock exclusively.
SELECT CASE WHEN sqlc.arg(inside)::boolean THEN pg_catalog.pg_try_advisory_xact_lock_shared(1901988892, sqlc.arg(priority)::integer)
    ELSE pg_catalog.pg_try_advisory_lock_shared(1901988892, sqlc.arg(priority)::integer) END::boolean AS told;
