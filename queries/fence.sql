-- name: Confirm :one
-- Confirm follows every attempt that may have been granted. It checks in pg_locks that the
-- backend of that pid, this one or that of a transaction, holds the lock, and if so passes the barrier and returns the parts of the term's
-- fencing token. pg_locks shows a bigint key in two halves, classid and objid, with objsubid
-- 1 (PostgreSQL manual, 54.12). A backend's locks are always of its own database.
--
-- The barrier takes the guard lock exclusively and releases it at the end of the statement,
-- which is a transaction. So it waits for every open fenced transaction of earlier terms;
-- each later one finds that its term has ended. The guard lock has the election's 64-bit key
-- in the key space of two integers, and so never conflicts with an election's lock.
--
-- The token has the timeline in the upper 16 bits, so that tokens rise across a promotion,
-- and the transaction id in the lower 48, so that they rise within a timeline. The timeline
-- is the first 8 hex digits of the current WAL file's name; just after a promotion
-- pg_control_checkpoint() still shows the old one. A transaction that wrote nothing commits
-- asynchronously, and after a crash its id could be assigned again: the empty message makes
-- the commit wait for the WAL.
--
-- The caller adds the epoch to the timeline. It is the setting pgelector.epoch that ALTER
-- DATABASE … SET has stored; current_setting would show it on later connections only.
--
-- Confirm also takes the lock that tells since when the session leads (TryLock), but for a
-- transaction, which has taken it itself.
--
-- transaction names the one in which the lock is held: two can be of the same backend. Its
-- second word is the start of the server, whose process ids another server may have, too.
--
-- The answer for a transaction is not held, with the name of the transaction, if a candidate in
-- session scope has locks on the same backend, which a pooler shares. The server would grant
-- the transaction a lock that the session has.
--
-- A transaction has a mark: the local setting pgelector.transaction, whose value is the time at
-- which the transaction began. Everybody may set that for a session, which a pooler then gives to
-- others. So the setting alone says nothing: only in the very transaction that was marked are both equal.
--
-- in_transaction means that the previous statement on this backend, which marked its
-- transaction, ran in the same one, which other code left open. Then held is false, and the
-- caller must refuse the connection: the barrier would last until the end of that transaction.
-- held is true only with a token, which is made behind the barrier.
SELECT (t.token IS NOT NULL)::boolean AS held, pg_catalog.pg_backend_pid()::integer AS pid, COALESCE(t.token, 0)::bigint AS token,
COALESCE((
    SELECT pg_catalog.substr(c.line, 17)
    FROM pg_catalog.pg_db_role_setting AS s, pg_catalog.unnest(s.setconfig) AS c(line)
    WHERE s.setrole OPERATOR(pg_catalog.=) 0::pg_catalog.oid AND pg_catalog.starts_with(c.line, 'pgelector.epoch=')
        AND s.setdatabase OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
), '0')::pg_catalog.text AS epoch,
t.in_transaction::boolean AS in_transaction,
COALESCE(t.transaction, '')::pg_catalog.text AS transaction
FROM (SELECT h.in_transaction, h.transaction, CASE WHEN h.held AND NOT h.in_transaction THEN
    CASE WHEN pg_catalog.pg_advisory_xact_lock(sqlc.arg(guard_high)::integer, sqlc.arg(guard_low)::integer) IS NOT NULL
        AND pg_catalog.pg_logical_emit_message(true, 'pgelector', ''::pg_catalog.text) IS NOT NULL
        AND CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer THEN pg_catalog.pg_try_advisory_lock_shared(
            521961639, pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()))::bigint::bit(32)::integer) IS NOT NULL ELSE true END THEN
        (pg_catalog.concat('x', pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint OPERATOR(pg_catalog.<<) 48)
        OPERATOR(pg_catalog.|) pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint
    END
END AS token
FROM (
    SELECT f.in_transaction, f.transaction IS NOT NULL AND CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer THEN true ELSE NOT EXISTS (
        SELECT FROM pg_catalog.pg_locks AS l
        WHERE l.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
            AND l.classid::bigint OPERATOR(pg_catalog.=) 318473925 AND l.objsubid OPERATOR(pg_catalog.=) 2
    ) END AS held, f.transaction
    FROM (SELECT pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer
        AND COALESCE(pg_catalog.current_setting('pgelector.transaction', true), '') OPERATOR(pg_catalog.=)
            extract(epoch FROM pg_catalog.transaction_timestamp())::pg_catalog.text AS in_transaction, (
        SELECT pg_catalog.concat(l.virtualtransaction, ' ', extract(epoch FROM pg_catalog.pg_postmaster_start_time()))
        FROM pg_catalog.pg_locks AS l
        WHERE l.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
            AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND l.objsubid OPERATOR(pg_catalog.=) 1
            AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
            AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
    ) AS transaction OFFSET 0) AS f
    OFFSET 0
) AS h OFFSET 0) AS t;

-- name: EnterTerm :one
-- EnterTerm fences the current transaction: it shares the guard lock until the transaction
-- ends, and then checks that the term's session still holds the election's lock. In this
-- order, a next leader either waits at the barrier or is seen here. The outcome is 'entered';
-- 'open' if the transaction has written before: other code has left it open on the connection;
-- 'superseded' if a next leader is at the barrier; 'ended' if the session does not hold the
-- lock. Process ids are reused. So the session must also hold its name, a lock of two integers that no other
-- has had: each role sees that, but not when a backend of another role began. One scan of pg_locks sees
-- both at one time. transaction is that of
-- Confirm if the session holds its lock inside one, otherwise it is empty. fenced names the current
-- transaction (FencedTransaction), which has a transaction id from now on, also if it writes nothing. First
-- EnterTerm sets the given timeouts for the rest of the transaction, unless shorter ones are set, so that a
-- frozen client cannot block the barrier for ever, even if it freezes before it rolls back. Each is
-- turned off first: only then does transaction_timeout start a timer that runs already anew.
SELECT t.outcome, CASE WHEN t.outcome OPERATOR(pg_catalog.=) 'entered'
    THEN pg_catalog.concat(pg_catalog.pg_current_xact_id(), ' ', extract(epoch FROM pg_catalog.pg_postmaster_start_time())) ELSE ''
END::pg_catalog.text AS fenced
FROM (
    SELECT CASE
        WHEN pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL THEN 'open'
        WHEN (
            SELECT pg_catalog.count(pg_catalog.set_config(s.name,
                CASE WHEN pg_catalog.set_config(s.name, '0', true) IS NOT NULL THEN s.value END, true))
            FROM pg_catalog.json_to_recordset(sqlc.arg(settings)::pg_catalog.text::pg_catalog.json) AS s(name pg_catalog.text, value pg_catalog.text)
            WHERE pg_catalog.current_setting(s.name, true)::interval OPERATOR(pg_catalog.<) '1 microsecond'::interval
                OR pg_catalog.current_setting(s.name, true)::interval OPERATOR(pg_catalog.>) s.value::interval
        ) IS NULL THEN 'never'
        WHEN NOT pg_catalog.pg_try_advisory_xact_lock_shared(sqlc.arg(guard_high)::integer, sqlc.arg(guard_low)::integer) THEN 'superseded'
        WHEN (
            SELECT pg_catalog.count(*)
            FROM pg_catalog.pg_locks AS l
            WHERE l.pid OPERATOR(pg_catalog.=) sqlc.arg(pid)::integer AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
                AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
                AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
                AND CASE WHEN l.objsubid OPERATOR(pg_catalog.=) 1
                    THEN ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
                        AND (sqlc.arg(transaction)::pg_catalog.text OPERATOR(pg_catalog.=) ''
                            OR sqlc.arg(transaction)::pg_catalog.text OPERATOR(pg_catalog.=)
                                pg_catalog.concat(l.virtualtransaction, ' ', extract(epoch FROM pg_catalog.pg_postmaster_start_time())))
                    ELSE sqlc.arg(transaction)::pg_catalog.text OPERATOR(pg_catalog.=) ''
                        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(name)::bigint
                END
        ) OPERATOR(pg_catalog.=) CASE WHEN sqlc.arg(transaction)::pg_catalog.text OPERATOR(pg_catalog.=) '' THEN 2 ELSE 1 END THEN 'entered'
        ELSE 'ended'
    END::pg_catalog.text AS outcome
    OFFSET 0
) AS t;

-- name: FencedTransaction :one
-- FencedTransaction names this transaction, by its id and the start of its server. No setting is involved, so only
-- the transaction that EnterTerm has fenced gives that one's answer: after COMMIT, ROLLBACK or PREPARE TRANSACTION
-- another one does, also with AND CHAIN. It has no arguments, so that lib/pq asks in one round trip.
SELECT pg_catalog.concat(pg_catalog.pg_current_xact_id_if_assigned(), ' ', extract(epoch FROM pg_catalog.pg_postmaster_start_time()))::pg_catalog.text AS fenced;

-- name: FencedOutcome :one
-- FencedOutcome is what has become of a transaction that EnterTerm has fenced, on any connection to its server:
-- 'committed' and 'aborted' are final, 'in progress' is not, also if it was prepared. It is empty if nothing is known, as on another
-- server, or after a restart: there the id may be another transaction's.
SELECT COALESCE(CASE WHEN pg_catalog.split_part(f.transaction, ' ', 2) OPERATOR(pg_catalog.=) extract(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.text
    THEN pg_catalog.pg_xact_status(pg_catalog.split_part(f.transaction, ' ', 1)::pg_catalog.xid8) END, '')::pg_catalog.text AS outcome
FROM (SELECT sqlc.arg(transaction)::pg_catalog.text AS transaction OFFSET 0) AS f;

-- name: EndOverdue :many
-- EndOverdue terminates and returns the sessions that share an election's guard lock in a
-- transaction that began more than a lease ago. key is the election's. Their own timeouts
-- should have ended them, but a server that waits to send a result to a frozen client, or for
-- the data of its COPY, checks no timeout. It finds only transactions that this role may see,
-- and fails if it may not terminate one. A prepared transaction has no session: EndOverdue returns its
-- name, with 0 as pid, whenever it began. It is found by its lock on its own transaction id: its virtual transaction is
-- that of the session that has prepared it, or -1 and that id after a restart.
SELECT COALESCE(o.pid, 0)::integer AS pid, COALESCE(pg_catalog.pg_terminate_backend(o.pid), false)::boolean AS ended,
    COALESCE(o.gid, '')::pg_catalog.text AS prepared
FROM (
    SELECT l.pid, CASE WHEN l.pid IS NULL THEN (
            SELECT p.gid
            FROM pg_catalog.pg_locks AS own
            JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction OPERATOR(pg_catalog.=) own.transactionid
            WHERE own.locktype OPERATOR(pg_catalog.=) 'transactionid' AND own.pid IS NULL AND own.virtualtransaction OPERATOR(pg_catalog.=) l.virtualtransaction
            LIMIT 1
        ) END AS gid
    FROM pg_catalog.pg_locks AS l
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ShareLock' AND l.objsubid OPERATOR(pg_catalog.=) 2
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) sqlc.arg(key)::bigint
        AND (l.pid IS NULL OR a.xact_start OPERATOR(pg_catalog.<)
            (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) (sqlc.arg(lease_millis)::bigint::double precision OPERATOR(pg_catalog.*) '1 millisecond'::interval)))
    OFFSET 0
) AS o;
