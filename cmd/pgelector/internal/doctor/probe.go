package doctor

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
)

// probeBound bounds each probe, in which a pooler's connections may be kept from others.
const probeBound = 3 * time.Second

var (
	errNotTried   = errors.New("not tried on this server")
	errStatements = errors.New("a pooler refuses transactions")
	errShared     = errors.New("a pooler shares the backends of its sessions")
)

// prober has two connections, and the answers that later probes depend on.
type prober struct {
	*Examination
	a, b  *connect.Conn
	keeps answer // whether a connection keeps its backend between transactions
	why   error  // of keeps
}

// probeIf asks the server what it can do. A server on which no trial makes sense is not asked.
func (x *Examination) probeIf(s db.DescribeServerRow, usable bool) func(context.Context) error {
	if usable {
		return x.probe
	}
	return func(context.Context) error {
		for _, name := range []string{sessionLock, transactionLock, seenInLocks, sessionTimeout, transactionTimeout, notifies} {
			x.record(name, unknown, errNotTried)
		}
		if s.InRecovery {
			x.record(risingToken, no, errors.New("a standby assigns no transaction id"))
		} else {
			x.record(risingToken, unknown, errNotTried)
		}
		x.record(acknowledged, unknown, errNotTried)
		return nil
	}
}

func (x *Examination) probe(ctx context.Context) error {
	p := prober{Examination: x}
	bounded, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	for _, conn := range []**connect.Conn{&p.a, &p.b} {
		c, err := x.Target.Connect(bounded)
		if err != nil {
			x.say(note, "capabilities", "not all are known: %v", err)
			return nil
		}
		defer c.Close()
		*conn = c
	}
	p.keeps, p.why = p.keepsBackends(ctx)
	p.locks(ctx)
	p.timeouts(ctx)
	p.notification(ctx)
	p.tokens(ctx)
	p.acknowledgement(ctx)
	if s := x.scopes(); x.Healthy() && s["session"] == no && s["transaction"] == no {
		x.say(fail, "capabilities", "nobody can lead safely here, in neither scope: see what says no")
	}
	return nil
}

// keepsBackends says whether two connections that take turns are always answered by the same two
// backends.
func (p *prober) keepsBackends(ctx context.Context) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, max(p.Timeout, probeBound))
	defer cancel()
	var first, second uint32
	for n := range 3 {
		one, err := p.a.Backend(ctx)
		if err != nil {
			return unknown, err
		}
		two, err := p.b.Backend(ctx)
		if err != nil {
			return unknown, err
		}
		if n == 0 {
			first, second = one, two
		}
		if one == two || one != first || two != second {
			return no, errShared
		}
	}
	if p.inside && !p.stubs || p.statements {
		return no, errShared
	}
	return yes, nil
}

// inTx calls f in a transaction, which it rolls back.
func inTx(ctx context.Context, c *connect.Conn, f func(context.Context, *sql.Tx) error) error {
	return c.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		return f(ctx, tx)
	})
}

// granted reports in a transaction of its own whether b is granted a lock, which it does not keep.
func (p *prober) granted(ctx context.Context, key int64) (granted bool, err error) {
	err = inTx(ctx, p.b, func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "SELECT pg_catalog.pg_try_advisory_xact_lock($1::bigint)", key).Scan(&granted)
	})
	return granted, err
}

const countLocks = `SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks AS l
WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted AND l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
    AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint) OPERATOR(pg_catalog.=) $1::bigint`

// attempt takes a lock in a transaction of a, and reports whether b is refused, then granted it, and
// how many locks pg_locks shows. release is empty for a lock that the transaction's end releases.
func (p *prober) attempt(ctx context.Context, take, release string) (real bool, seen int, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(p.Timeout, probeBound))
	defer cancel()
	key := rand.Int64()
	var taken, doubled, freed bool
	err = inTx(ctx, p.a, func(ctx context.Context, tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, take, key).Scan(&taken); err != nil {
			return err
		}
		err := tx.QueryRowContext(ctx, countLocks, key).Scan(&seen)
		if err == nil {
			doubled, err = p.granted(ctx, key)
		}
		if release != "" { // also after an error, lest a pooler's backend keeps it
			_, failed := tx.ExecContext(ctx, release, key)
			err = errors.Join(err, failed)
		}
		return err
	})
	if err == nil {
		freed, err = p.granted(ctx, key)
	}
	return taken && !doubled && freed, seen, err
}

func (p *prober) locks(ctx context.Context) {
	if p.statements {
		p.record(sessionLock, no, errShared)
		p.record(transactionLock, no, errStatements)
		p.record(seenInLocks, unknown, errStatements)
		return
	}
	inside, seen, err := p.attempt(ctx, "SELECT pg_catalog.pg_try_advisory_xact_lock($1::bigint)", "")
	if p.keeps != yes { // a shared backend could keep the lock
		p.record(sessionLock, p.keeps, p.why)
	} else {
		session, seenToo, err := p.attempt(ctx, "SELECT pg_catalog.pg_try_advisory_lock($1::bigint)", "SELECT pg_catalog.pg_advisory_unlock($1::bigint)")
		p.record(sessionLock, judge(session, err), err)
		if session { // else pg_locks cannot show it
			seen = min(seen, seenToo)
		}
	}
	p.record(transactionLock, judge(inside, err), err)
	p.record(seenInLocks, judge(seen == 1, err), err)
}

// unsupported are the SQLSTATEs of what a server does not have.
var unsupported = []string{"0A000", "42601", "42704", "42883", "42P01"}

// judge is no only if the probe has shown it.
func judge(can bool, err error) answer {
	switch {
	case slices.Contains(unsupported, ask.State(err)):
		return no
	case err != nil:
		return unknown
	case can:
		return yes
	}
	return no
}

func (p *prober) notification(ctx context.Context) {
	if p.keeps != yes { // a shared backend would go on listening
		p.record(notifies, p.keeps, p.why)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, max(p.Timeout, probeBound))
	defer cancel()
	channel := "pgelector_doctor_" + strconv.FormatUint(rand.Uint64(), 36)
	var sent atomic.Bool // the call may go on after its time
	err := p.a.Hears(ctx, channel, func(ctx context.Context) error {
		return p.b.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, "NOTIFY "+channel)
			sent.Store(err == nil)
			return err
		})
	})
	if err != nil && ctx.Err() != nil && sent.Load() {
		p.record(notifies, no, errors.New("it did not arrive"))
		return
	}
	p.record(notifies, judge(true, err), err)
}

// tokens compares the token of the trial with the transaction that follows.
func (p *prober) tokens(ctx context.Context) {
	if p.token == 0 {
		p.record(risingToken, unknown, errors.New("nobody was elected"))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	var later int64
	err := inTx(ctx, p.b, func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint").Scan(&later)
	})
	p.record(risingToken, judge(later > transaction(p.token), err), err)
}

// acknowledgement lets a candidate with WithSynchronousStandby try. If all standbys have acknowledged, it is
// still too early for the candidate to lead.
func (p *prober) acknowledgement(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, max(p.Timeout, certain))
	defer cancel()
	err := p.synchronous(ctx)
	switch {
	case err == nil || errors.Is(err, elector.ErrTooEarly):
		p.record(acknowledged, yes, nil)
	case errors.Is(err, elector.ErrNotSynchronous) || p.keeps == no:
		p.record(acknowledged, no, err)
	default:
		p.record(acknowledged, unknown, err)
	}
}
