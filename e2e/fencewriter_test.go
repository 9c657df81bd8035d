//go:build unix

package e2e_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
)

// writerVariable holds the settings of a writer. It makes the test binary one,
// instead of running the tests.
const writerVariable = "PGELECTOR_E2E_WRITER"

func init() {
	if text := os.Getenv(writerVariable); text != "" {
		os.Exit(beWriter(text))
	}
}

// A way to write is how a leader's writes are fenced.
type way string

const (
	unfenced way = "unfenced" // it checks that it leads, and then writes
	inTx     way = "in tx"    // Term.InTx
	byToken  way = "by token" // fence.Advance, in a store that knows nothing of the election
)

// writerSettings are what a writer's process is told.
type writerSettings struct {
	Driver, DSN, Store, Election, ID string
	Way                              way
	Register                         string        // the table of one row that it writes to
	Lease, Retry                     time.Duration // of its candidate
	Pause                            time.Duration // the longest, between the check and the write
	Lockstep                         bool          // wait for "go" on standard input between the check and the write
}

// A deed is one line of what a writer tells. Times are of the machine's
// monotonic clock, in nanoseconds.
type deed struct {
	ID           string
	Kind         deedKind
	Token        int64
	Call, Return int64  `json:",omitempty"`
	Old, New     string `json:",omitempty"` // what a write replaces, by the writer's memory; what a read has read
	Outcome      string `json:",omitempty"`
	Text         string `json:",omitempty"`
}

type deedKind string

const (
	isReady    deedKind = "ready"
	hasRead    deedKind = "read"    // the register, at the beginning of a term
	hasChecked deedKind = "checked" // that it leads, and goes on to write
	hasWritten deedKind = "written" // or tried to
	hasLeft    deedKind = "left"    // its term
)

const (
	ok      = "ok"
	refused = "refused" // nothing was written
	unknown = "unknown"
)

// A writer leads and writes to a register, as one who remembers what it says:
// it reads it once in a term.
type writer struct {
	writerSettings
	tell        func(deed)
	pool, store *sql.DB
	steps       chan struct{} // in lockstep
	n           int
}

func beWriter(text string) (exit int) {
	w := &writer{steps: make(chan struct{}, 100)}
	if err := json.Unmarshal([]byte(text), &w.writerSettings); err != nil {
		return complain(err)
	}
	out := json.NewEncoder(os.Stdout)
	w.tell = func(d deed) { d.ID = w.ID; _ = out.Encode(d) } // from one goroutine
	var err error
	if w.pool, err = sql.Open(w.Driver, w.DSN); err != nil {
		return complain(err)
	}
	if w.store, err = sql.Open(w.Driver, w.Store); err != nil {
		return complain(err)
	}
	e, err := elector.New(w.pool, w.Election, elector.WithCandidateID(w.ID), elector.WithLease(w.Lease),
		elector.WithHeartbeatInterval(w.Lease/5), elector.WithRetryInterval(w.Retry), elector.WithBackoff(w.Retry, w.Retry))
	if err != nil {
		return complain(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop() // the test has ended, or is dead
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			w.steps <- struct{}{}
		}
	}()
	w.tell(deed{Kind: isReady})
	for ctx.Err() == nil {
		term, err := e.Campaign(ctx)
		if err != nil {
			continue
		}
		if err := w.lead(ctx, term); err != nil {
			w.tell(deed{Kind: hasLeft, Token: term.Token(), Text: err.Error()})
		} else {
			w.tell(deed{Kind: hasLeft, Token: term.Token()})
		}
		_ = term.Resign(context.Background())
	}
	return 0
}

// lead writes until the term has ended, or a write has not succeeded.
func (w *writer) lead(ctx context.Context, term *elector.Term) error {
	var value string
	call := monotonic()
	outcome, err := w.do(term, func(tx execer) error {
		return tx.QueryRowContext(context.Background(), "SELECT value FROM "+w.Register).Scan(&value)
	})
	if outcome != ok {
		return err
	}
	w.tell(deed{Kind: hasRead, Token: term.Token(), Call: call, Return: monotonic(), New: value})
	for ctx.Err() == nil {
		w.n++
		next := fmt.Sprint(w.ID, "-", w.n)
		call := monotonic()
		if !term.Valid() { // the check
			return nil
		}
		w.tell(deed{Kind: hasChecked, Token: term.Token()})
		if w.Lockstep {
			select {
			case <-w.steps:
			case <-ctx.Done():
				return nil
			}
		}
		w.pause()
		outcome, err := w.do(term, func(tx execer) error {
			_, err := tx.ExecContext(context.Background(), "UPDATE "+w.Register+" SET value = $1", next)
			w.pause()
			return err
		})
		text := ""
		if err != nil {
			text = err.Error()
		}
		w.tell(deed{Kind: hasWritten, Token: term.Token(), Call: call, Return: monotonic(), Old: value, New: next, Outcome: outcome, Text: text})
		if outcome != ok {
			return err
		}
		value = next
	}
	return nil
}

type execer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// do makes one read or write in the writer's way.
func (w *writer) do(term *elector.Term, fn func(execer) error) (outcome string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch w.Way {
	case inTx:
		err = term.InTx(ctx, w.store, nil, func(tx *sql.Tx) error { return fn(tx) })
	case byToken:
		err = w.fenced(ctx, term.Token(), fn)
	default:
		err = fn(w.store)
	}
	switch {
	case err == nil:
		return ok, nil
	case errors.Is(err, elector.ErrOutcomeUnknown):
		return unknown, err
	}
	return refused, err
}

func (w *writer) fenced(ctx context.Context, token int64, fn func(execer) error) error {
	tx, err := w.store.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fence.Advance(ctx, tx, w.Register, token); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", elector.ErrOutcomeUnknown, err)
	}
	return nil
}

func (w *writer) pause() {
	if w.Pause > 0 {
		time.Sleep(rand.N(w.Pause))
	}
}

var registers atomic.Int64

// register makes a table of one row, and the guard rows, in a store.
func makeRegister(store *sql.DB) (name string, err error) {
	name = fmt.Sprint("register_", strings.ReplaceAll(unique("r"), "-", "_"), "_", registers.Add(1))
	_, err = store.Exec("CREATE TABLE " + name + " (value text); INSERT INTO " + name + " VALUES ('')")
	return name, err
}
