//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
)

// writerVariable holds the settings of a writer. If it is set, the test binary runs a
// writer instead of the tests.
const writerVariable = "PGELECTOR_E2E_WRITER"

func init() {
	if text := os.Getenv(writerVariable); text != "" {
		os.Exit(runWriter(text))
	}
}

// A way to write is how a leader's writes are fenced.
type way string

const (
	unfenced way = "unfenced" // it checks that it leads, then writes
	inTx     way = "in tx"    // Term.InTx
	byToken  way = "by token" // fence.Advance, in a store that is independent of the election
)

// writerSettings configure a writer's process.
type writerSettings struct {
	Driver, DSN, Store, Election, ID string
	Way                              way
	Register                         string        // the table with one row to write to
	Lease, Retry                     time.Duration // of its candidate
	Pause                            time.Duration // maximum pause between the check and the write
}

// A writer leads and writes to a register. It reads the register once per term and then
// remembers its value.
type writer struct {
	writerSettings
	*history.Recorder
	pool, store *sql.DB
	n           int
}

func runWriter(text string) (exit int) {
	w := &writer{}
	if err := json.Unmarshal([]byte(text), &w.writerSettings); err != nil {
		return complain(err)
	}
	w.Recorder = history.NewRecorder(os.Stdout, w.ID)
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
		defer stop() // the test has ended
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	for ctx.Err() == nil {
		term, err := e.Campaign(ctx)
		if err != nil {
			_ = complain(err) // for a test that fails
			continue
		}
		w.Record(history.Event{Text: w.lead(ctx, term), Kind: history.Ended, Token: term.Token()})
		_ = term.Resign(context.Background())
	}
	return 0
}

// lead writes until the term ends or a write fails, and returns that error's text.
func (w *writer) lead(ctx context.Context, term *elector.Term) string {
	read := history.Event{Kind: history.Read, At: history.Now(), Token: term.Token()}
	outcome, text := w.do(term, func(tx execer) error {
		return tx.QueryRowContext(context.Background(), "SELECT value FROM "+w.Register).Scan(&read.New)
	})
	if outcome != history.Wrote {
		return text
	}
	read.Took = history.Now().Sub(read.At)
	w.Record(read)
	for value := read.New; ctx.Err() == nil; {
		w.n++
		write := history.Event{At: history.Now(), Token: term.Token(), Old: value, New: fmt.Sprint(w.ID, "-", w.n)}
		if !term.Valid() { // the check
			return ""
		}
		w.Record(history.Event{Kind: history.Checked, Token: term.Token()})
		w.pause()
		write.Kind, write.Text = w.do(term, func(tx execer) error {
			_, err := tx.ExecContext(context.Background(), "UPDATE "+w.Register+" SET value = $1", write.New)
			w.pause()
			return err
		})
		write.Took = history.Now().Sub(write.At)
		if w.Record(write); write.Kind != history.Wrote {
			return write.Text
		}
		value = write.New
		w.pause() // another writer, without a fence, may wait for the row, and was never the first
	}
	return ""
}

type execer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// do makes one read or write in the writer's way. text is the error, unless it succeeded.
func (w *writer) do(term *elector.Term, fn func(execer) error) (outcome history.Kind, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
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
		return history.Wrote, ""
	case errors.Is(err, elector.ErrOutcomeUnknown):
		return history.Unsure, err.Error()
	}
	return history.Refused, err.Error()
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
	time.Sleep(rand.N(w.Pause))
}
