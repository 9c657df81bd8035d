//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
)

// What leaders write to: a row for each way, with the name and the token of who
// wrote it last.
const (
	createTable = `CREATE TABLE written (way text PRIMARY KEY, writer text NOT NULL, token bigint NOT NULL)`
	insertRow   = `INSERT INTO written VALUES ($1, '', 0)`
	writeRow    = `UPDATE written SET writer = $2, token = $3 WHERE way = $1`
	writeFenced = writeRow + ` AND token <= $3`
	readRow     = `SELECT writer, token FROM written WHERE way = $1`
)

// checkAndWrite is one who checks, and writes when told to. The transaction of
// InTx is open from before the check until after the write: one that begins after
// a thaw is refused by the process's own clock, and shows nothing of the database.
func (r *role) checkAndWrite(ctx context.Context) error {
	term, leading := r.elector.Term()
	if !leading {
		return fmt.Errorf("demo: told to write: %w", elector.ErrNotLeader)
	}
	var begun history.Time // 0 if it was not told to go on
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

// tried records what became of a write. An error that is not the refusal is
// returned: it would prove nothing.
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
