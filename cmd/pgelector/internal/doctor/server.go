package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/db"
)

const oldest = 140000 // idle_session_timeout, which is the lease, came with PostgreSQL 14

// server checks what the server says of itself, and whether it is worth trying.
func (x *Examination) server(s db.DescribeServerRow) (usable bool) {
	version, _, _ := strings.Cut(s.Version, " on ")
	if s.VersionNum < oldest {
		x.say(fail, "version", "%s cannot enforce a lease: PostgreSQL 14 or newer is needed", version)
	} else {
		x.say(ok, "version", "%s", version)
	}
	if s.InRecovery {
		x.say(fail, "recovery", "this is a standby, whose locks are its own: connect to the primary, for instance with target_session_attrs=read-write")
	} else {
		x.say(ok, "recovery", "this is a primary")
	}
	return s.VersionNum >= oldest && !s.InRecovery
}

// pooler looks for a pooler: one answers the handshake itself, with a process id
// that is not its backend's. Its mode shows by what it lets through.
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
		x.say(ok, "pooler", "none: the server itself answers")
		return nil
	}
	mode, err := x.poolMode(ctx, conn)
	switch {
	case err != nil:
		return err
	case mode == "session":
		x.say(note, "pooler", "there is one; it seems to be in session mode, which will do: see that it does not end idle connections sooner than the lease")
	default:
		x.say(fail, "pooler", "there is one in %s mode, which shares backends, and so the lock: connect to the server itself, or through a pool in session mode", mode)
	}
	return nil
}

// poolMode tells a pooler's mode. In statement mode a transaction cannot begin.
// In transaction mode a connection that is idle has no backend of its own: one
// that another connection leaves is taken by it.
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
