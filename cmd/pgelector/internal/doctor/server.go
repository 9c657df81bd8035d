package doctor

import (
	"context"
	"fmt"
	"strconv"
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

// A token is the sum of timeline and epoch, followed by the transaction id.
const (
	sumShift = 48
	maxSum   = 1<<15 - 1
)

// tokenParts shows the parts of the trial's token, and whether it is larger than LastToken.
func (x *Examination) tokenParts(ctx context.Context) error {
	if x.token == 0 {
		return nil // the trial reported why
	}
	setting, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (string, error) { return q.TokenEpoch(ctx) })
	if err != nil {
		return err
	}
	stored, err := strconv.ParseInt(setting, 10, 64)
	if err != nil {
		return fmt.Errorf("the setting pgelector.epoch of this database: %w", err)
	}
	own := int64(x.TokenEpoch)
	timeline := x.token>>sumShift - max(stored, own)
	v, remark := ok, ""
	switch {
	case own == 0 && stored > 0:
		remark = " (pgelector.epoch of the database)"
	case own == stored:
	case stored == 0:
		v, remark = note, fmt.Sprintf(" (--token-epoch): set the same for every candidate, with --token-epoch or WithTokenEpoch, "+
			"or once for all with ALTER DATABASE … SET pgelector.epoch = '%d'", own)
	case own > stored:
		v, remark = warn, fmt.Sprintf(" (--token-epoch), but pgelector.epoch of the database is %d: candidates without the flag get smaller tokens, "+
			"which a fenced store refuses: ALTER DATABASE … SET pgelector.epoch = '%d'", stored, own)
	default:
		v, remark = warn, fmt.Sprintf(" (pgelector.epoch of the database): it is larger than --token-epoch %d, so omit the flag", own)
	}
	x.say(v, "token", "%d: timeline %d, transaction %d, epoch %d%s", x.token, timeline, transaction(x.token), max(stored, own), remark)
	if x.LastToken > 0 {
		x.compare(timeline)
	}
	return nil
}

// compare checks that new tokens are larger than the last one, or names the epoch that
// makes them so.
func (x *Examination) compare(timeline int64) {
	last := fmt.Sprintf("%d (timeline and epoch %d, transaction %d)", x.LastToken, x.LastToken>>sumShift, transaction(x.LastToken))
	needed := x.LastToken>>sumShift - timeline
	if transaction(x.token) <= transaction(x.LastToken) {
		needed++
	}
	switch {
	case x.token > x.LastToken:
		x.say(ok, "last token", "%s: new tokens are larger", last)
	case timeline+needed > maxSum:
		x.say(fail, "last token", "%s: new tokens are not larger, and no epoch can make them so: reset the token in the store while nobody writes", last)
	default:
		x.say(fail, "last token", "%s: new tokens are not larger, so the store refuses every leader: "+
			"ALTER DATABASE … SET pgelector.epoch = '%d' as a superuser, or set --token-epoch %[2]d or WithTokenEpoch(%[2]d) on every candidate", last, needed)
	}
}

func transaction(token int64) int64 { return token & (1<<sumShift - 1) }
