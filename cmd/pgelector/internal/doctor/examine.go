package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
)

// DefaultLease is the library's.
const DefaultLease = 10 * time.Second

// Examination is one run of all the checks.
type Examination struct {
	Target  *connect.Target
	Out     io.Writer
	Timeout time.Duration // of each question
	Lease   time.Duration

	TokenEpoch int   // that the candidates have
	LastToken  int64 // the largest that a store has seen; 0 if that is not known

	pool   *sql.DB // for questions
	token  int64   // of the trial; 0 if it was not elected
	failed int
	worst  time.Duration // the longest round trip
}

// verdict is how a check ended.
type verdict string

const (
	ok   verdict = "ok"
	note verdict = "note" // nothing to do, but good to know
	warn verdict = "warn" // the promise holds, but something will be missed
	fail verdict = "FAIL" // the promise cannot be kept
)

// Run examines, and writes what it finds. The error is of a server that cannot
// be asked at all.
func (x *Examination) Run(ctx context.Context) (err error) {
	if x.pool, err = x.Target.Open(connect.Inspection); err != nil {
		return err
	}
	defer func() { go x.pool.Close() }() // lib/pq may hang
	candidate, closePool, err := x.candidate()
	if err != nil {
		return err
	}
	defer closePool()
	if err := x.Target.Check(ctx, x.pool, x.Timeout); err != nil {
		x.say(fail, "connection", "none: see below")
		return err
	}
	x.say(ok, "connection", "%s, by driver %s, found by %s", x.Target, x.Target.Driver, x.Target.Source)
	x.connecting()
	server, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (db.DescribeServerRow, error) { return q.DescribeServer(ctx) })
	if err != nil {
		return err
	}
	usable := x.server(server)
	for _, check := range []func(context.Context) error{x.pooler, x.trialIf(usable, candidate), x.tokenParts, x.settings, x.privileges, x.room, x.roundTrips, x.clocks} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	x.recommend()
	return nil
}

// Healthy reports, after Run, whether the promise can be kept.
func (x *Examination) Healthy() bool { return x.failed == 0 }

// say writes the line of a check.
func (x *Examination) say(v verdict, check, format string, args ...any) {
	if v == fail {
		x.failed++
	}
	fmt.Fprintf(x.Out, "%-4s  %-15s  %s\n", v, check, x.Target.Scrub(fmt.Sprintf(format, args...)))
}

// question asks the server, for no longer than the timeout, whether or not the
// driver returns.
func question[T any](ctx context.Context, x *Examination, ask func(context.Context, *db.Queries) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, x.Timeout, fmt.Errorf("no answer within %v", x.Timeout))
	defer cancel()
	return backoff.Await(ctx, func(ctx context.Context) (T, error) { return ask(ctx, db.New(x.pool)) })
}
