//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// frozenLeader is about a leader that can do nothing about its end: no signal
// handler runs, the connection stays open, and the kernel answers for it.
func (s *stage) frozenLeader(ctx context.Context) (outcome, error) {
	old, c, err := s.leader(ctx)
	if err != nil {
		return outcome{}, err
	}
	s.says("%s, process %d, is frozen by SIGSTOP: its connection stays open", c.Name, c.pid())
	o, err := s.succession(ctx, old, c.freeze(old.token))
	if err != nil {
		return o, err
	}
	s.says("PostgreSQL had ended the idle session of %s after its lease of %v", c.Name, s.lease)
	if err := pause(ctx); err != nil {
		return o, err
	}
	seat := s.board.of(c.Name)
	thawed := c.thaw(old.token)
	s.says("%s is thawed by SIGCONT", c.Name)
	if err := s.await(ctx, "the first answer after the thaw", func() bool { return seat.woke != nil }); err != nil {
		return o, err
	}
	s.says("the first IsLeader() of %s, %s after SIGCONT, says %v", c.Name, millis(seat.woke.At.Sub(thawed)), seat.woke.Leading)
	err = s.await(ctx, "the end of the frozen term", func() bool { return seat.demoted != nil && seat.demoted.Token == old.token })
	if err != nil {
		return o, err
	}
	s.says("its hook was told: demoted, %s", seat.demoted.Text)
	return o, nil
}

// terminatedBackend is about an administrator who ends the leader's session.
func (s *stage) terminatedBackend(ctx context.Context) (o outcome, err error) {
	conn, err := s.cluster.Conn(ctx)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	old, c, err := s.leader(ctx)
	if err != nil {
		return o, err
	}
	holder, err := s.observer.Leader(ctx)
	if err != nil {
		return o, err
	}
	if id := candidateID(c.Name, c.pid()); holder.CandidateID != id {
		return o, fmt.Errorf("%s leads, but the server says that %s holds the lock", id, holder.CandidateID)
	}
	s.says("backend %d, which holds the lock for %s, is ended by pg_terminate_backend", holder.PID, c.Name)
	at := c.does(history.Severed, old.token)
	if _, err := conn.Exec(ctx, "SELECT pg_terminate_backend($1)", holder.PID); err != nil {
		return o, fmt.Errorf("terminate backend %d: %w", holder.PID, err)
	}
	if o, err = s.succession(ctx, old, at); err != nil {
		return o, err
	}
	return o, s.learned(ctx, old, at)
}

// databaseRestart ends every session at once, without ceremony.
func (s *stage) databaseRestart(ctx context.Context) (outcome, error) {
	old, c, err := s.leader(ctx)
	if err != nil {
		return outcome{}, err
	}
	s.says("the server is shut down, mode immediate, and started again")
	at := c.does(history.Severed, old.token)
	if err := s.cluster.Restart(ctx, pgcluster.Immediate); err != nil {
		return outcome{}, err
	}
	s.says("it accepts connections again, %s after the shutdown", seconds(history.Now().Sub(at)))
	o, err := s.succession(ctx, old, at)
	if err != nil {
		return o, err
	}
	return o, s.learned(ctx, old, at)
}

// learned says how soon a leader knew that the server had ended its session.
func (s *stage) learned(ctx context.Context, old *reign, severed history.Time) error {
	err := s.await(ctx, "the end of the old term", func() bool { return old.ended != 0 })
	if err != nil {
		return err
	}
	s.says("%s knew after %s that its session was gone (a heartbeat tells every %v)", old.process,
		millis(old.ended.Sub(severed)), heartbeat(s.lease))
	if next := s.board.after(old.token); next.began < old.ended {
		s.says("so for %s both believed that they led: this is what the token is for", millis(old.ended.Sub(next.began)))
	}
	return nil
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
