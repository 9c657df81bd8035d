package simulation

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"sync"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A store is the database's table of registers, one for each election. A leader reads its
// register once in a term and then overwrites the value that it remembers. If another candidate
// writes in between, that write is lost: Term.InTx promises that this does not happen.
type store struct {
	judge *judge
	mu    sync.Mutex
	value map[string]int64
	token map[string]int64 // of the last write
}

// clone returns a copy, for a standby.
func (s *store) clone() *store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &store{judge: s.judge, value: maps.Clone(s.value), token: maps.Clone(s.token)}
}

const (
	readRegister  = "SELECT value FROM register WHERE election = $1"
	writeRegister = "UPDATE register SET value = $2 WHERE election = $1 AND $3 AND $4"
)

// handle executes the statements of a writer.
func (s *store) handle(st electortest.Statement) (electortest.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	election := st.Args[0].(string)
	if st.SQL == readRegister {
		return electortest.Answer{Rows: [][]any{{s.value[election]}}}, nil
	}
	value, remembered, token := st.Args[1].(int64), st.Args[2].(int64), st.Args[3].(int64)
	st.OnCommit(func() { s.commit(election, value, remembered, token) })
	return electortest.Answer{Affected: 1}, nil
}

func (s *store) commit(election string, value, remembered, token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.value[election] != remembered {
		s.judge.violated("term %d overwrote %s, where it remembers %d; the lost write was %d, of term %d", token, election, remembered, s.value[election], s.token[election])
	}
	if token < s.token[election] {
		s.judge.violated("term %d wrote to %s after term %d", token, election, s.token[election])
	}
	s.value[election], s.token[election] = value, token
}

// A writer writes in one term.
type writer struct {
	*candidacy
	term       *elector.Term
	hasRead    bool
	remembered int64
}

// write writes once, and reports whether the writer may go on.
func (w *writer) write(ctx context.Context) bool {
	var next int64
	err := w.term.InTx(ctx, w.pool, nil, func(tx *sql.Tx) error {
		if !w.hasRead {
			if err := tx.QueryRowContext(ctx, readRegister, w.Election()).Scan(&w.remembered); err != nil {
				return err
			}
		}
		next = int64(w.draw(1, 1<<62))
		sleep(ctx, w.draw(0, w.draw(0, 4*w.plan.Heartbeat)))
		w.waitWhileFrozen()
		_, err := tx.ExecContext(ctx, writeRegister, w.Election(), next, w.remembered, w.term.Token())
		return err
	})
	switch {
	case err == nil:
		w.hasRead, w.remembered = true, next
		return true
	case errors.Is(err, elector.ErrOutcomeUnknown):
		return false
	}
	return errors.Is(err, elector.ErrRolledBack) && !errors.Is(err, elector.ErrNotLeader) && ctx.Err() == nil
}
