//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/e2e/history"
)

// lateWrite is about what no lock can prevent: a leader that stands still after
// its check, and writes when another has led and written.
func (s *stage) lateWrite(ctx context.Context) (o outcome, err error) {
	conn, err := s.cluster.Conn(ctx)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if err := createRows(ctx, conn); err != nil {
		return o, err
	}
	old, c, err := s.leader(ctx)
	if err != nil {
		return o, err
	}
	if err := s.check(ctx, c, old.token); err != nil {
		return o, err
	}
	s.says("%s asks IsLeader(), which says true, and is about to write", c.Name)
	frozen := c.freeze(old.token)
	s.says("%s is frozen by SIGSTOP, with a transaction of InTx open", c.Name)
	if o, err = s.succession(ctx, old, frozen); err != nil {
		return o, err
	}
	next := s.candidate(o.new)
	if err := s.check(ctx, next, o.token); err != nil {
		return o, err
	}
	if err := next.tell(cmdWrite); err != nil {
		return o, err
	}
	if _, err := s.written(ctx, next); err != nil {
		return o, err
	}
	s.says("%s writes, in three ways", next.Name)
	if err := pause(ctx); err != nil {
		return o, err
	}
	return o, s.thawAndWrite(ctx, conn, c, old.token)
}

// thawAndWrite lets the first leader go on where it stood, and reads what the
// table holds after that.
func (s *stage) thawAndWrite(ctx context.Context, conn *pgx.Conn, c *candidate, token int64) error {
	if err := c.tell(cmdWrite); err != nil { // which it finds when it thaws
		return err
	}
	c.thaw(token)
	s.says("%s is thawed by SIGCONT, and goes on to write:", c.Name)
	tried, err := s.written(ctx, c)
	if err != nil {
		return err
	}
	for _, way := range history.Ways {
		e := history.Event{Kind: history.Found, At: history.Now(), Way: way}
		if err := conn.QueryRow(ctx, readRow, way).Scan(&e.Process, &e.Token); err != nil {
			return fmt.Errorf("read what was written: %w", err)
		}
		s.log.Add(e)
		if tried[way].Kind == history.Refused {
			s.says("  %-9s  was refused; the table has what %s wrote", way, e.Process)
		} else {
			s.says("  %-9s  went through, no lock prevents it: the table has %s's", way, e.Process)
		}
	}
	return nil
}

func createRows(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, createTable); err != nil {
		return fmt.Errorf("create what is written to: %w", err)
	}
	for _, way := range history.Ways {
		if _, err := conn.Exec(ctx, insertRow, way); err != nil {
			return fmt.Errorf("create what is written to: %w", err)
		}
	}
	return nil
}

// check has the leader check that it leads, and stop before it writes.
func (s *stage) check(ctx context.Context, c *candidate, token int64) error {
	if err := c.tell(cmdCheck); err != nil {
		return err
	}
	seat := s.board.of(c.Name)
	err := s.await(ctx, "the check before the write", func() bool { return seat.checked != nil && seat.checked.Token == token })
	if err == nil && !seat.checked.Leading {
		err = fmt.Errorf("%s checked whether it leads, and does not", c.Name)
	}
	return err
}

// written waits for a process's writes, and returns what became of each.
func (s *stage) written(ctx context.Context, c *candidate) (map[history.Way]history.Event, error) {
	seat := s.board.of(c.Name)
	tried := make(map[history.Way]history.Event)
	err := s.await(ctx, "the writes of "+c.Name, func() bool { return len(seat.tried) == len(history.Ways) })
	for _, e := range seat.tried {
		tried[e.Way] = e
	}
	return tried, err
}
