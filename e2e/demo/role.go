//go:build unix

package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
	"github.com/pgelector/pgelector/hooks"
)

// spec describes a candidate to its process, on the command line, as JSON.
type spec struct {
	Name   string `json:"name"`
	Driver driver `json:"driver"`
	DSN    string `json:"dsn"`
}

// driver is the name of a driver in database/sql.
type driver string

func (d driver) String() string {
	if d == "postgres" {
		return "lib/pq"
	}
	return string(d)
}

func candidateID(name string, pid int) string { return fmt.Sprintf("demo-%s-%d", name, pid) }

// The commands on a candidate's standard input. At its end the candidate leaves the
// election and exits.
const (
	cmdRun    = "run"    // campaign
	cmdResign = "resign" // resign the term
	cmdCheck  = "check"  // check that it leads, report it, and prepare to write
	cmdWrite  = "write"  // continue after that check
)

// exitGrace bounds how long a candidate takes to leave after its input has ended.
const exitGrace = 5 * time.Second

// runCandidate runs a candidate's process (a hidden subcommand). It returns when in has ended.
// It writes its events to out.
func runCandidate(arg string, in io.Reader, out io.Writer) error {
	var p spec
	if err := json.Unmarshal([]byte(arg), &p); err != nil {
		return fmt.Errorf("demo: the arguments of a candidate: %w", err)
	}
	pool, err := sql.Open(string(p.Driver), p.DSN)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer pool.Close()
	r := &role{name: p.Name, pool: pool, out: history.NewRecorder(out, p.Name), goOn: make(chan struct{})}
	r.elector, err = elector.New(pool, election, append(options,
		elector.WithCandidateID(candidateID(p.Name, os.Getpid())), elector.WithHooks(r.hook()))...)
	if err != nil {
		return err
	}
	r.out.Record(history.Event{Kind: history.Hello, PID: os.Getpid(), Text: p.Driver.String(), Driver: p.Driver.String()})
	err = r.play(in)
	r.out.Record(history.Event{Kind: history.Bye})
	return errors.Join(err, r.out.Err())
}

// role is the state of a candidate's process.
type role struct {
	name    string
	pool    *sql.DB
	elector *elector.Elector
	out     *history.Recorder
	goOn    chan struct{} // receives a value for each cmdWrite; the prepared write waits for it
}

// errLeave ends the campaign and the term after the input has ended.
var errLeave = errors.New("demo: asked to leave")

// play handles commands until the input ends, or the election refuses to run.
func (r *role) play(in io.Reader) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	commands := make(chan string)
	go func() { // nobody waits for a read that never returns
		for scanner := bufio.NewScanner(in); scanner.Scan(); {
			select {
			case commands <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
		cancel(errLeave)
	}()
	var wg sync.WaitGroup
	wg.Go(func() { r.sample(ctx) })
	for ctx.Err() == nil {
		select {
		case command := <-commands:
			r.obey(ctx, cancel, &wg, command)
		case <-ctx.Done():
		}
	}
	// The demo has ended, or asks this process to end. Do not wait long: the server may
	// be gone.
	overdue := time.AfterFunc(exitGrace, func() { os.Exit(1) })
	defer overdue.Stop()
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errLeave) {
		return err
	}
	return nil
}

// obey begins what a command says.
func (r *role) obey(ctx context.Context, cancel context.CancelCauseFunc, wg *sync.WaitGroup, command string) {
	switch command {
	case cmdRun:
		wg.Go(func() { cancel(r.elector.Run(ctx, r.lead)) })
	case cmdResign:
		wg.Go(func() { r.resign(ctx) })
	case cmdCheck:
		wg.Go(func() {
			if err := r.checkAndWrite(ctx); err != nil {
				cancel(err)
			}
		})
	case cmdWrite:
		wg.Go(func() {
			select {
			case r.goOn <- struct{}{}:
			case <-ctx.Done():
			}
		})
	default:
		cancel(fmt.Errorf("demo: unknown command %q", command))
	}
}

// lead is the leader's work: small steps, each in a valid term.
func (r *role) lead(ctx context.Context, term *elector.Term) error {
	if at := history.Now(); term.Valid() {
		r.out.Record(history.Event{Kind: history.Began, At: at, Token: term.Token()})
	}
	steps := time.NewTicker(workStep)
	defer steps.Stop()
	for {
		if at := history.Now(); term.Valid() {
			r.out.Record(history.Event{Kind: history.Worked, At: at, Token: term.Token()})
		}
		select {
		case <-steps.C:
		case <-ctx.Done():
			at := history.Now()
			overdue := time.Now().After(term.Deadline().Add(drain))
			r.out.Record(history.Event{Kind: history.Ended, At: at, Token: term.Token(), Overdue: overdue})
			return nil
		}
	}
}

// sample calls IsLeader again and again and records the results.
func (r *role) sample(ctx context.Context) {
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	last := history.Now()
	for {
		at := history.Now()
		term, _ := r.elector.Term()
		e := history.Event{Kind: history.Sample, At: at, Leading: r.elector.IsLeader()}
		if since := at.Sub(last); since > 3*sampling {
			e.Stood = since
		}
		last = at
		e.Took = history.Now().Sub(at)
		if term != nil {
			e.Token = term.Token()
			e.Deadline = history.Now().Add(time.Until(term.Deadline()))
		}
		r.out.Record(e)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *role) resign(ctx context.Context) {
	e := history.Event{Kind: history.Resigned}
	if term, leading := r.elector.Term(); !leading {
		e.Text = elector.ErrNotLeader.Error()
	} else if err := term.Resign(ctx); err != nil {
		e.Token, e.Text = term.Token(), err.Error()
	}
	r.out.Record(e)
}

func (r *role) hook() hooks.Funcs {
	return hooks.Funcs{
		Elected: func(_ context.Context, e hooks.Elected) {
			r.out.Record(history.Event{Kind: history.Elected, Token: e.Token})
		},
		Demoted: func(_ context.Context, e hooks.Demoted) {
			r.out.Record(history.Event{Kind: history.Demoted, Token: e.Token, Text: string(e.Reason)})
		},
		Campaign: func(_ context.Context, e hooks.Campaign) {
			r.out.Record(history.Event{Kind: history.Attempt, Text: string(e.Outcome)})
		},
		Error: func(_ context.Context, e hooks.Failure) {
			r.out.Record(history.Event{Kind: history.Failed, Text: fmt.Sprintf("%s: %v", e.Op, e.Err)})
		},
	}
}

// The table that leaders write to has a row for each way, with the name and the token of
// its last writer.
const (
	createTable = `CREATE TABLE written (way text PRIMARY KEY, writer text NOT NULL, token bigint NOT NULL)`
	insertRow   = `INSERT INTO written VALUES ($1, '', 0)`
	writeRow    = `UPDATE written SET writer = $2, token = $3 WHERE way = $1`
	writeFenced = writeRow + ` AND token <= $3`
	readRow     = `SELECT writer, token FROM written WHERE way = $1`
)

// checkAndWrite checks that the process leads, and writes when cmdWrite comes. The transaction
// of InTx is open from before the check until after the write: if it began after a thaw, the
// process's own clock would refuse it, which would show nothing about the database.
func (r *role) checkAndWrite(ctx context.Context) error {
	term, leading := r.elector.Term()
	if !leading {
		return fmt.Errorf("demo: asked to write: %w", elector.ErrNotLeader)
	}
	var begun history.Time // 0 if cmdWrite did not come
	err := term.InTx(ctx, r.pool, nil, func(tx *sql.Tx) error {
		r.out.Record(history.Event{Kind: history.Checked, Token: term.Token(), Leading: r.elector.IsLeader()})
		select {
		case <-r.goOn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		begun = history.Now()
		_, err := tx.ExecContext(ctx, writeRow, history.InTx, r.name, term.Token())
		return err
	})
	if begun == 0 {
		return err
	}
	if err := r.tried(history.InTx, term, begun, err, elector.ErrRolledBack); err != nil {
		return err
	}
	begun = history.Now()
	_, err = r.pool.ExecContext(ctx, writeRow, history.Unfenced, r.name, term.Token())
	if err := r.tried(history.Unfenced, term, begun, err, nil); err != nil {
		return err
	}
	begun = history.Now()
	err = fence.Applied(r.pool.ExecContext(ctx, writeFenced, history.ByToken, r.name, term.Token()))
	return r.tried(history.ByToken, term, begun, err, fence.ErrStale)
}

// tried records the outcome of a write. It returns any error other than the refusal, since
// that would prove nothing.
func (r *role) tried(way history.Way, term *elector.Term, begun history.Time, err, refusal error) error {
	e := history.Event{Kind: history.Wrote, At: begun, Took: history.Now().Sub(begun), Token: term.Token(), Way: way}
	switch {
	case err == nil:
	case refusal != nil && errors.Is(err, refusal):
		e.Kind, e.Text = history.Refused, err.Error()
	default:
		return fmt.Errorf("demo: write (%s): %w", way, err)
	}
	r.out.Record(e)
	return nil
}
