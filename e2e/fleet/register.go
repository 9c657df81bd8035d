//go:build linux

package fleet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/elector"
)

// Role is the candidates', which may do nothing but connect and write to the
// tables of Schema.
const Role = "candidate"

// Schema makes the tables that leaders write to. Each timeline of the database has
// a register: that of a primary which another has replaced is not the same as that
// of its successor. Its first write gives it a name, since a number of a timeline may
// be used again, when a failover manager has discarded the first. The ledger keeps
// every write, and so tells which of those that were acknowledged a failover has lost.
const Schema = `
	CREATE TABLE register (timeline text PRIMARY KEY, name text NOT NULL, value text NOT NULL);
	CREATE TABLE ledger (value text PRIMARY KEY, register text NOT NULL, token bigint NOT NULL);
	GRANT SELECT, INSERT, UPDATE ON register TO ` + Role + `;
	GRANT INSERT ON ledger TO ` + Role

const timelineNow = `pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)`

const (
	readRegister = `SELECT coalesce(r.name, ''), coalesce(r.value, '')
		FROM (SELECT ` + timelineNow + ` AS timeline) now LEFT JOIN register r ON r.timeline = now.timeline`
	writeRegister = `INSERT INTO register SELECT now, now || ' ' || gen_random_uuid(), $1 FROM (SELECT ` + timelineNow + ` AS now) t
		ON CONFLICT (timeline) DO UPDATE SET value = excluded.value RETURNING name`
	writeLedger = `INSERT INTO ledger VALUES ($1, $2, $3)`
)

// memory is what a leader knows of the register. One that was never written to has
// no name.
type memory struct {
	known       bool
	name, value string
}

// use reads the register if it is not known, and else writes to it. It returns
// what is known then.
func (s *stand) use(ctx context.Context, term *elector.Term, known memory) memory {
	op := history.Event{At: history.Now(), Token: term.Token(), Way: history.InTx}
	if !known.known {
		err := term.InTx(ctx, s.pool, nil, func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, readRegister).Scan(&known.name, &known.value)
		})
		if err != nil {
			return memory{}
		}
		known.known = true
		if known.name == "" {
			return known
		}
		op.Kind, op.Register, op.New = history.Read, known.name, known.value
		op.Took = history.Now().Sub(op.At)
		s.record(op)
		return known
	}
	s.writes++
	op.Register, op.Old, op.New = known.name, known.value, fmt.Sprint(s.Name, "-", s.writes)
	op.Kind = history.Writes
	s.record(op) // before it may go through, since this process may be killed
	op.At = history.Now()
	err := term.InTx(ctx, s.pool, nil, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, writeRegister, op.New).Scan(&op.Register); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, writeLedger, op.New, op.Register, op.Token)
		return err
	})
	op.Took = history.Now().Sub(op.At)
	op.Kind = history.Wrote
	switch {
	case errors.Is(err, elector.ErrOutcomeUnknown):
		op.Kind, op.Text = history.Unsure, err.Error()
	case err != nil:
		op.Kind, op.Text = history.Refused, err.Error()
	}
	s.record(op)
	if err != nil {
		return memory{} // what it says now must be read
	}
	return memory{true, op.Register, op.New}
}
