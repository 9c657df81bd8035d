package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/db"
)

const oldest = 140000 // PostgreSQL 14 introduced idle_session_timeout, which enforces the lease

// server checks the version and recovery, and reports whether a trial makes sense.
func (x *Examination) server(s db.DescribeServerRow) (usable bool) {
	version, _, _ := strings.Cut(s.Version, " on ")
	if s.VersionNum < oldest {
		x.say(fail, "version", "%s cannot enforce a lease: PostgreSQL 14 or newer is needed", version)
	} else {
		x.say(ok, "version", "%s", version)
	}
	if s.InRecovery {
		x.say(fail, "recovery", "this is a standby: connect to the primary, for instance with target_session_attrs=read-write")
	} else {
		x.say(ok, "recovery", "this is a primary")
	}
	return s.VersionNum >= oldest && !s.InRecovery
}

// pooler detects a pooler: it answers the handshake with a process id that is not the
// backend's.
func (x *Examination) pooler(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	conn, err := x.Target.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	first, err := backend(ctx, conn)
	if err != nil {
		return err
	}
	if conn.PgConn().PID() == first {
		x.say(ok, "pooler", "none: the server answers directly")
		return nil
	}
	mode, err := x.poolMode(ctx, conn)
	switch {
	case err != nil:
		return err
	case mode == "session":
		x.say(note, "pooler", "there is one, apparently in session mode, which works: make sure that it does not close idle connections before the lease ends")
	case mode == "transaction":
		x.say(note, "pooler", "there is one in transaction mode: a leader holds its lock inside a transaction (transaction scope), which keeps one of the "+
			"pooler's server connections, idle in transaction; see the need below, and leave idle_transaction_timeout of the pooler at 0")
	default:
		x.say(fail, "pooler", "there is one in %s mode, which shares backends and so the lock: connect to the server directly, or through a pool in session "+
			"or transaction mode", mode)
	}
	return nil
}

// poolMode detects a pooler's mode. In statement mode BEGIN fails. In transaction mode an
// idle connection has no backend, so two connections use the same one in turn.
func (x *Examination) poolMode(ctx context.Context, conn *pgx.Conn) (string, error) {
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		return "statement", nil
	}
	if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
		return "", err
	}
	other, err := x.Target.Connect(ctx)
	if err != nil {
		return "", err
	}
	defer other.Close(context.WithoutCancel(ctx))
	mine, err := backend(ctx, conn)
	if err != nil {
		return "", err
	}
	if _, err := other.Exec(ctx, "BEGIN"); err != nil {
		return "", err
	}
	theirs, err := backend(ctx, other)
	if err != nil {
		return "", err
	}
	again, err := backend(ctx, conn)
	if err != nil {
		return "", err
	}
	if mine == theirs || mine != again {
		return "transaction", nil
	}
	return "session", nil
}

func backend(ctx context.Context, conn *pgx.Conn) (uint32, error) {
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&pid); err != nil {
		return 0, fmt.Errorf("ask for the backend: %w", err)
	}
	return pid, nil
}
