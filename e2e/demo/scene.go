//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
)

// scene is one act upon the election.
type scene struct {
	title string
	play  func(*stage, context.Context) (outcome, error)
}

// scenes is filled in by init, since the views, which scenes use, list it.
var scenes []scene

func init() {
	scenes = []scene{
		{"first election", (*stage).firstElection},
		{"clean resignation", (*stage).cleanResignation},
		{"kill -9 of the leader", (*stage).killedLeader},
		{"frozen leader (SIGSTOP)", (*stage).frozenLeader},
		{"terminated backend", (*stage).terminatedBackend},
		{"database restart (immediate)", (*stage).databaseRestart},
		{"a write that came too late", (*stage).lateWrite},
	}
}

// linger is a moment for whoever watches. Nothing relies on it.
const linger = time.Second

func pause(ctx context.Context) error {
	select {
	case <-time.After(linger):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// perform plays all scenes, one after the other.
func (s *stage) perform(ctx context.Context) ([]outcome, error) {
	var outcomes []outcome
	for i, scene := range scenes {
		s.view.begins(i + 1)
		o, err := s.performOne(ctx, scene)
		if err != nil {
			return nil, fmt.Errorf("demo: scene %d, %s: %w", i+1, scene.title, err)
		}
		o.number, o.title = i+1, scene.title
		outcomes = append(outcomes, o)
		s.view.ends(o)
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

func (s *stage) performOne(ctx context.Context, scene scene) (outcome, error) {
	limit := sceneDeadline(s.lease)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not come within %v", limit))
	defer cancel()
	o, err := scene.play(s, ctx)
	if err != nil {
		return o, err
	}
	_, _, err = s.leader(ctx) // the next scene begins in peace
	return o, err
}

// succession waits for the first term after the old one, which is nil at first.
func (s *stage) succession(ctx context.Context, old *reign, since history.Time) (outcome, error) {
	var o outcome
	var token int64
	if old != nil {
		o.old, token = old.process, old.token
	}
	var r *reign
	err := s.await(ctx, "the next leader", func() bool { r = s.board.after(token); return r != nil })
	if err != nil {
		return o, err
	}
	o.new, o.token, o.headless = r.process, r.token, r.began.Sub(since)
	s.says("%s begins to lead", r.process)
	return o, nil
}

func (s *stage) firstElection(ctx context.Context) (outcome, error) {
	s.says("three candidates start to campaign")
	start := history.Now()
	for _, c := range s.cast {
		if err := c.tell(cmdRun); err != nil {
			return outcome{}, err
		}
	}
	return s.succession(ctx, nil, start)
}

func (s *stage) cleanResignation(ctx context.Context) (outcome, error) {
	old, c, err := s.leader(ctx)
	if err != nil {
		return outcome{}, err
	}
	s.says("%s is asked to resign", c.Name)
	if err := c.tell(cmdResign); err != nil {
		return outcome{}, err
	}
	err = s.await(ctx, "the end of its work", func() bool { return old.ended != 0 })
	if err != nil {
		return outcome{}, err
	}
	o, err := s.succession(ctx, old, old.ended)
	if err != nil {
		return o, err
	}
	seat := s.board.of(c.Name)
	err = s.await(ctx, "the return of Resign", func() bool { return seat.resigned != nil })
	if err == nil && seat.resigned.Text != "" {
		err = fmt.Errorf("the resignation of %s failed: %s", c.Name, seat.resigned.Text)
	}
	s.says("Resign had returned nil to %s: its work had ended, then the lock was free", c.Name)
	return o, err
}

func (s *stage) killedLeader(ctx context.Context) (outcome, error) {
	old, c, err := s.leader(ctx)
	if err != nil {
		return outcome{}, err
	}
	s.says("%s, process %d, is killed by SIGKILL", c.Name, c.pid())
	at := c.does(history.Killed, old.token)
	c.kill()
	o, err := s.succession(ctx, old, at)
	if err != nil {
		return o, err
	}
	fresh, err := s.hire(ctx, c.Driver)
	if err != nil {
		return o, err
	}
	s.says("%s, process %d, is started in its place", fresh.Name, fresh.pid())
	return o, fresh.tell(cmdRun)
}
