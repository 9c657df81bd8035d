//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

// stage is where the play takes place: the server, the candidates, and what is
// known of them.
type stage struct {
	lease   time.Duration
	cluster *pgcluster.Cluster
	command func(args ...string) *exec.Cmd
	guard   *guard
	log     *history.Log
	board   board
	view    view
	fail    context.CancelCauseFunc // ends the play

	pool     *sql.DB
	observer *elector.Elector // asks the server who leads; never campaigns

	hired int // names given so far
	cast  []*candidate
}

func newStage(cfg config, cluster *pgcluster.Cluster, fail context.CancelCauseFunc) (_ *stage, err error) {
	s := &stage{lease: cfg.Lease, cluster: cluster, command: cfg.Command, log: new(history.Log), fail: fail}
	if s.pool, err = sql.Open("pgx", cluster.DSN()); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if s.observer, err = elector.New(s.pool, election, options(cfg.Lease)...); err != nil {
		return nil, errors.Join(err, s.pool.Close())
	}
	if s.guard, err = startGuard(cfg.Command); err != nil {
		return nil, errors.Join(err, s.pool.Close())
	}
	return s, nil
}

// strike takes everything down. The guard is last: until then it is needed.
func (s *stage) strike() error {
	for _, c := range s.cast {
		c.kill()
	}
	return errors.Join(s.guard.stop(), s.pool.Close())
}

// hire starts a candidate and returns when it has said hello.
func (s *stage) hire(ctx context.Context, d driver) (*candidate, error) {
	name := string(rune('A' + s.hired))
	s.hired++
	c, err := startCandidate(part{Name: name, Driver: d, DSN: s.cluster.DSN(), Lease: s.lease}, s.command, s.guard, s.log, s.fail)
	if err != nil {
		return nil, err
	}
	s.cast = append(s.cast, c)
	return c, s.await(ctx, "hello of candidate "+name, func() bool { return s.board.of(name) != nil })
}

// dismiss lets every candidate leave, the leader last, so that none is elected
// just to leave.
func (s *stage) dismiss() error {
	var errs []error
	leader := s.board.settled()
	for _, leads := range []bool{false, true} {
		for _, c := range s.cast {
			if leads == (leader != nil && leader.process == c.Name) {
				errs = append(errs, c.leave())
			}
		}
	}
	return errors.Join(errs...)
}

func (s *stage) candidate(name string) *candidate {
	return s.cast[slices.IndexFunc(s.cast, func(c *candidate) bool { return c.Name == name })]
}

// leader returns who leads once that is plain to all: no other candidate was
// elected meanwhile, none is still starting or cut off.
func (s *stage) leader(ctx context.Context) (*reign, *candidate, error) {
	err := s.await(ctx, "one leader and everybody else in waiting", func() bool { return s.board.settled() != nil })
	if err != nil {
		return nil, nil, err
	}
	r := s.board.settled()
	return r, s.candidate(r.process), nil
}

// await returns when the board shows what it is waited for.
func (s *stage) await(ctx context.Context, what string, shown func() bool) error {
	for {
		s.board.update(s.log.Since(s.board.read))
		if shown() {
			return nil
		}
		if _, err := s.log.Await(ctx, s.board.read); err != nil {
			return fmt.Errorf("waited for %s: %w%s", what, err, s.lastErrors())
		}
	}
}

// lastErrors is a hint for who must find out why a scene failed.
func (s *stage) lastErrors() string {
	const most = 5
	var said []string
	for _, e := range slices.Backward(s.log.Since(0)) {
		if e.Kind == history.Failed && len(said) < most {
			said = append(said, fmt.Sprintf("\n  candidate %s: %s", e.Process, e.Text))
		}
	}
	if said == nil {
		return ""
	}
	slices.Reverse(said)
	return "; the last errors that the candidates reported:" + strings.Join(said, "")
}

func (s *stage) says(format string, args ...any) { s.view.says(fmt.Sprintf(format, args...)) }
