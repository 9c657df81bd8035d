package doctor

import (
	"context"
	"database/sql"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
	"github.com/pgelector/pgelector/db"
)

// timeouts makes the server end an idle session, and an idle transaction.
func (p *prober) timeouts(ctx context.Context) {
	if p.keeps == yes {
		ended, err := p.ends(ctx, "SET idle_session_timeout = '200ms'", false)
		p.record(sessionTimeout, judge(ended, err), err)
	} else {
		p.record(sessionTimeout, p.keeps, p.why)
	}
	if p.statements {
		p.record(transactionTimeout, no, errStatements)
		return
	}
	ended, err := p.ends(ctx, "SET LOCAL idle_in_transaction_session_timeout = '200ms'", true)
	p.record(transactionTimeout, judge(ended, err), err)
}

// ends reports whether the server ends a connection of the probe's own after that setting, in a
// transaction or not.
func (p *prober) ends(ctx context.Context, set string, inside bool) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout+probeBound)
	defer cancel()
	c, err := p.Target.Connect(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	if inside {
		err = inTx(ctx, c, func(ctx context.Context, tx *sql.Tx) (err error) {
			ended, err = p.idles(ctx, tx, set)
			return err
		})
		return ended, err
	}
	err = c.Do(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
		if ended, err = p.idles(ctx, conn, set); !ended { // a pooler may give it to others
			_, _ = conn.ExecContext(ctx, "RESET idle_session_timeout")
		}
		return err
	})
	return ended, err
}

// idles sets a timeout, and reports whether the server then ends that backend.
func (p *prober) idles(ctx context.Context, c db.DBTX, set string) (ended bool, err error) {
	if _, err := c.ExecContext(ctx, set); err != nil {
		return false, err
	}
	var pid int // which a proxy may keep for the session from the setting on
	if err := c.QueryRowContext(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&pid); err != nil {
		return false, err
	}
	for began := time.Now(); !ended && time.Since(began) < probeBound && ask.Sleep(ctx, 50*time.Millisecond); {
		err := inTx(ctx, p.b, func(ctx context.Context, tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.pid OPERATOR(pg_catalog.=) $1::integer)", pid).Scan(&ended)
		})
		if err != nil {
			return false, err
		}
	}
	return ended, ctx.Err()
}
