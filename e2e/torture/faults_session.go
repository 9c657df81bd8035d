//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// terminateBackends ends the sessions that hold advisory locks, or all.
func (n *nemesis) terminateBackends(ctx context.Context) (healing, string, error) {
	statement, whom := "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", "everybody"
	if n.rnd.IntN(3) > 0 {
		statement, whom = "SELECT pg_terminate_backend(pid) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted) l JOIN pg_stat_activity USING (pid) WHERE usename = $1", "who holds locks"
	}
	return nil, whom, n.severing(func() error { return n.ask(ctx, statement) })
}

func (n *nemesis) cancelStatements(ctx context.Context) (healing, string, error) {
	for range 3 {
		if err := n.ask(ctx, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = $1"); err != nil {
			return nil, "", err
		}
	}
	return nil, "everybody", nil
}

// ask asks the primary, unless another fault has it: what cannot be done then is
// left undone.
func (n *nemesis) ask(ctx context.Context, statement string) error {
	asking, cancel := context.WithTimeout(ctx, fleet.Lease)
	defer cancel()
	_ = n.stage.primary.Exec(asking, statement, fleet.Role)
	return context.Cause(ctx)
}

func (n *nemesis) discardAll(ctx context.Context) (healing, string, error) {
	m := n.victim(ctx)
	if m == nil {
		return nil, "", nil
	}
	return nil, m.Name, m.Tell(fleet.Discard)
}

// closePool is the end of a candidate: without its pool it can only leave.
func (n *nemesis) closePool(ctx context.Context) (healing, string, error) {
	m := n.victim(ctx)
	if m == nil {
		return nil, "", nil
	}
	n.leavers = append(n.leavers, m)
	return nil, m.Name, m.Tell(fleet.Close)
}

// takeConnections takes all that ordinary roles may have.
func (n *nemesis) takeConnections(ctx context.Context) (healing, string, error) {
	var taken []*pgx.Conn
	for {
		asking, cancel := context.WithTimeout(ctx, fleet.Lease)
		conn, err := pgx.Connect(asking, n.stage.primary.DSN(pgcluster.ForRole(fleet.Role), pgcluster.WithParam("application_name", "stranger")))
		cancel()
		if err != nil {
			break // there are no more, or the server is down
		}
		taken = append(taken, conn)
	}
	return func(ctx context.Context) error {
		for _, conn := range taken {
			_ = conn.Close(ctx)
		}
		return nil
	}, fmt.Sprint(len(taken)), context.Cause(ctx)
}

// crashBackend ends the backend of whoever holds the lock.
func (n *nemesis) crashBackend(ctx context.Context) (healing, string, error) {
	conn, err := n.stage.primary.Conn(ctx)
	if err != nil {
		return nil, "", err
	}
	var pid int
	err = conn.QueryRow(ctx, "SELECT pid FROM pg_stat_activity WHERE usename = $1 ORDER BY random() LIMIT 1", fleet.Role).Scan(&pid)
	_ = conn.Close(ctx)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, "nobody", nil
	}
	if err != nil {
		return nil, "", err
	}
	return nil, "", n.severing(func() error {
		if n.stage.primary.KillBackend(pid) != nil {
			return nil // it has ended by itself
		}
		return n.stage.primary.WaitReady(ctx)
	})
}
