-- name: Tenure :one
-- Tenure says how long a server has run, and which primary it is, together with what a
-- backend of that pid holds there. owner names the transaction in which the backend holds the
-- lock, as Confirm does; it is empty if the backend does not hold the lock, so for pid 0. The
-- answer is of one server: the one that has granted the lock has run for so long. ran is in
-- microseconds by the server's own clock, and negative if that was set back. The timeline is 0 in
-- recovery; Confirm explains its source. With started, it names a primary: SynchronousStandbys
-- explains that.
SELECT
    pg_catalog.pg_backend_pid()::integer AS pid,
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0
        ELSE pg_catalog.concat('x', pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint
    END::bigint AS timeline,
    (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS started,
    (extract(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.pg_postmaster_start_time()) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS ran,
    COALESCE((
        SELECT pg_catalog.concat(l.virtualtransaction, ' ', extract(epoch FROM pg_catalog.pg_postmaster_start_time()))
        FROM pg_catalog.pg_locks AS l
        WHERE l.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
            AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
            AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
            AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
    ), '')::pg_catalog.text AS owner;

-- name: LastCheckpoint :one
-- LastCheckpoint says on which timeline the last checkpoint of this server was made, and how long
-- ago it began, in microseconds by the server's own clock. The server records the beginning in
-- whole seconds, so it may be a second less. A promotion makes a new timeline, and the first
-- checkpoint on that timeline begins after the promotion was decided. So if checkpointed is the
-- timeline of now, the server has been a primary since. Until that checkpoint has ended,
-- checkpointed is the timeline before.
--
-- A client can make a checkpoint (CHECKPOINT), which shortens age, and nothing that lengthens
-- age. Any role may call pg_control_checkpoint unless that was revoked. timeline and started tell
-- whether this is the server of Tenure.
SELECT
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0
        ELSE pg_catalog.concat('x', pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint
    END::bigint AS timeline,
    (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint AS started,
    COALESCE(c.timeline_id, 0)::bigint AS checkpointed,
    COALESCE((extract(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) c.checkpoint_time) OPERATOR(pg_catalog.*) 1000000::numeric)::bigint, 0)::bigint AS age
FROM pg_catalog.pg_control_checkpoint() AS c;
