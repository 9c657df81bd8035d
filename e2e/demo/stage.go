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

// stage is the server, the candidates and their state.
type stage struct {
	lease   time.Duration
	cluster *pgcluster.Cluster
	command func(args ...string) *exec.Cmd
	guard   *guard
	log     *history.Log
	board   board
	view    view
	fail    context.CancelCauseFunc // ends the demo

	pool     *sql.DB
	observer *elector.Elector // asks the server who leads; never campaigns

	hired      int // candidates so far, for their names
	candidates []*candidate
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

// stop ends all processes, the guard last.
func (s *stage) stop() error {
	for _, c := range s.candidates {
		c.kill()
	}
	return errors.Join(s.guard.stop(), s.pool.Close())
}

// addCandidate starts a candidate and returns when its process is ready.
func (s *stage) addCandidate(ctx context.Context, d driver) (*candidate, error) {
	name := string(rune('A' + s.hired))
	s.hired++
	c, err := startCandidate(spec{Name: name, Driver: d, DSN: s.cluster.DSN(), Lease: s.lease}, s.command, s.guard, s.log, s.fail)
	if err != nil {
		return nil, err
	}
	s.candidates = append(s.candidates, c)
	return c, s.await(ctx, "hello of candidate "+name, func() bool { return s.board.of(name) != nil })
}

// dismiss asks every candidate to leave, the leader last, so that nobody is elected meanwhile.
func (s *stage) dismiss() error {
	var errs []error
	leader := s.board.settled()
	for _, leads := range []bool{false, true} {
		for _, c := range s.candidates {
			if leads == (leader != nil && leader.process == c.Name) {
				errs = append(errs, c.leave())
			}
		}
	}
	return errors.Join(errs...)
}

func (s *stage) candidate(name string) *candidate {
	return s.candidates[slices.IndexFunc(s.candidates, func(c *candidate) bool { return c.Name == name })]
}

// leader waits until the election is settled and returns the leader: all other candidates
// follow it.
func (s *stage) leader(ctx context.Context) (*reign, *candidate, error) {
	err := s.await(ctx, "one leader that all others follow", func() bool { return s.board.settled() != nil })
	if err != nil {
		return nil, nil, err
	}
	r := s.board.settled()
	return r, s.candidate(r.process), nil
}

// await waits until shown returns true, which reads the board.
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

// lastErrors helps to find out why a scene failed.
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
