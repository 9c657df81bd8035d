//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/sandbox"
	"github.com/pgelector/pgelector/elector"
)

// scene is one part of the demo, with one fault.
type scene struct {
	title string
	play  func(*stage, context.Context) (outcome, error)
}

// init sets scenes: the views list them, and they use the views.
var scenes []scene

func init() {
	scenes = []scene{
		{"first election", (*stage).firstElection},
		{"clean resignation", (*stage).cleanResignation},
		{"planned hand-over", (*stage).plannedHandOver},
		{"kill -9 of the leader", (*stage).killedLeader},
		{"frozen leader (SIGSTOP)", (*stage).frozenLeader},
		{"terminated backend", (*stage).terminatedBackend},
		{"database restart (immediate)", (*stage).databaseRestart},
		{"a write that came too late", (*stage).lateWrite},
	}
}

// linger gives the viewer time to read. Nothing depends on it.
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
	ctx, cancel := context.WithTimeoutCause(ctx, sceneDeadline, fmt.Errorf("it did not happen within %v", sceneDeadline))
	defer cancel()
	o, err := scene.play(s, ctx)
	if err != nil {
		return o, err
	}
	_, _, err = s.leader(ctx) // the next scene starts from a settled election
	return o, err
}

// succession waits for the first term after the old one, which is nil at the start.
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
	o.new, o.token, o.vacant = r.process, r.token, r.began.Sub(since)
	s.says("%s begins to lead", r.process)
	return o, nil
}

func (s *stage) firstElection(ctx context.Context) (outcome, error) {
	s.says("three candidates start to campaign")
	start := history.Now()
	for _, c := range s.candidates {
		if err := c.send(cmdRun); err != nil {
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
	if err := c.send(cmdResign); err != nil {
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

// plannedHandOver asks the leader to hand over, as an operator would.
func (s *stage) plannedHandOver(ctx context.Context) (outcome, error) {
	old, c, err := s.leader(ctx)
	if err != nil {
		return outcome{}, err
	}
	next := s.candidates[slices.IndexFunc(s.candidates, func(other *candidate) bool { return other.Name != c.Name })]
	id := candidateID(next.Name, next.pid())
	s.says("somebody who is no candidate asks %s to hand over: pgelector resign %s --to %s", c.Name, election, id)
	leader, err := elector.RequestTransfer(ctx, s.pool, election, id)
	if err != nil {
		return outcome{}, err
	}
	s.says("the answer is that %s leads, in backend %d", leader.CandidateID, leader.PID)
	err = s.await(ctx, "the end of its work", func() bool { return old.ended != 0 })
	if err != nil {
		return outcome{}, err
	}
	o, err := s.succession(ctx, old, old.ended)
	if err == nil && o.new != next.Name {
		err = fmt.Errorf("%s leads, and not %s", o.new, next.Name)
	}
	return o, err
}

func (s *stage) killedLeader(ctx context.Context) (outcome, error) {
	old, c, err := s.leader(ctx)
	if err != nil {
		return outcome{}, err
	}
	s.says("%s, process %d, is killed by SIGKILL", c.Name, c.pid())
	at := c.mark(history.Killed, old.token)
	c.kill()
	o, err := s.succession(ctx, old, at)
	if err != nil {
		return o, err
	}
	fresh, err := s.addCandidate(ctx, c.Driver)
	if err != nil {
		return o, err
	}
	s.says("%s, process %d, is started in its place", fresh.Name, fresh.pid())
	return o, fresh.send(cmdRun)
}

// frozenLeader freezes the leader, which then cannot step down: no signal handler runs, the
// connection stays open, and the kernel keeps acknowledging TCP packets.
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
	s.says("PostgreSQL had ended the idle session of %s after its lease of %v", c.Name, lease)
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
	s.says("its hook reports: demoted, %s", seat.demoted.Text)
	return o, nil
}

// terminatedBackend ends the leader's session, as an administrator would.
func (s *stage) terminatedBackend(ctx context.Context) (o outcome, err error) {
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
	at, err := c.severing(old.token, func() error {
		_, err := s.pool.ExecContext(ctx, "SELECT pg_terminate_backend($1, $2)", holder.PID, sceneDeadline.Milliseconds()) // waits until it has ended
		return err
	})
	if err != nil {
		return o, fmt.Errorf("terminate backend %d: %w", holder.PID, err)
	}
	if o, err = s.succession(ctx, old, at); err != nil {
		return o, err
	}
	return o, s.learned(ctx, old, at)
}

// databaseRestart restarts the server in immediate mode, which ends every session.
func (s *stage) databaseRestart(ctx context.Context) (outcome, error) {
	old, c, err := s.leader(ctx)
	if err != nil {
		return outcome{}, err
	}
	s.says("the server is shut down, mode immediate, and started again")
	at, err := c.severing(old.token, func() error { return s.cluster.Shutdown(ctx, pgcluster.Immediate) })
	if err = errors.Join(err, s.cluster.Resume(ctx)); err != nil {
		return outcome{}, err
	}
	s.says("it accepts connections again, %s after the shutdown", seconds(history.Now().Sub(at)))
	o, err := s.succession(ctx, old, at)
	if err != nil {
		return o, err
	}
	return o, s.learned(ctx, old, at)
}

// learned reports how soon a leader learned that the server had ended its session.
func (s *stage) learned(ctx context.Context, old *reign, severed history.Time) error {
	err := s.await(ctx, "the end of the old term", func() bool { return old.ended != 0 })
	if err != nil {
		return err
	}
	s.says("%s learned after %s that its session was gone (it sends a heartbeat every %v)", old.process,
		millis(old.ended.Sub(severed)), heartbeat)
	if next := s.board.after(old.token); next.began < old.ended {
		s.says("so for %s both believed that they led: the token tells their writes apart", millis(old.ended.Sub(next.began)))
	}
	return nil
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// lateWrite shows what no lock can prevent: a leader that is frozen after its check and writes
// after another leader has written.
func (s *stage) lateWrite(ctx context.Context) (o outcome, err error) {
	if err := s.createRows(ctx); err != nil {
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
	if err := next.send(cmdWrite); err != nil {
		return o, err
	}
	if _, err := s.written(ctx, next); err != nil {
		return o, err
	}
	s.says("%s writes, in three ways", next.Name)
	if err := pause(ctx); err != nil {
		return o, err
	}
	return o, s.thawAndWrite(ctx, c, old.token)
}

// thawAndWrite lets the first leader continue with its write, and then reads the table.
func (s *stage) thawAndWrite(ctx context.Context, c *candidate, token int64) error {
	if err := c.send(cmdWrite); err != nil { // it reads the command after the thaw
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
		if err := s.pool.QueryRowContext(ctx, readRow, way).Scan(&e.Process, &e.Token); err != nil {
			return fmt.Errorf("read what was written: %w", err)
		}
		s.log.Add(e)
		if tried[way].Kind == history.Refused {
			s.says("  %-9s  was refused; the table has what %s wrote", way, e.Process)
		} else {
			s.says("  %-9s  went through: no lock can prevent it; the table has what %s wrote", way, e.Process)
		}
	}
	return nil
}

func (s *stage) createRows(ctx context.Context) error {
	err := s.cluster.Exec(ctx, createTable)
	for _, way := range history.Ways {
		err = errors.Join(err, s.cluster.Exec(ctx, insertRow, way))
	}
	return err
}

// check makes the leader check that it leads, and stop before it writes.
func (s *stage) check(ctx context.Context, c *candidate, token int64) error {
	if err := c.send(cmdCheck); err != nil {
		return err
	}
	seat := s.board.of(c.Name)
	err := s.await(ctx, "the check before the write", func() bool { return seat.checked != nil && seat.checked.Token == token })
	if err == nil && !seat.checked.Leading {
		err = fmt.Errorf("%s checked whether it leads: it does not", c.Name)
	}
	return err
}

// written waits for a process's writes and returns their outcomes.
func (s *stage) written(ctx context.Context, c *candidate) (map[history.Way]history.Event, error) {
	seat := s.board.of(c.Name)
	tried := make(map[history.Way]history.Event)
	err := s.await(ctx, "the writes of "+c.Name, func() bool { return len(seat.tried) == len(history.Ways) })
	for _, e := range seat.tried {
		tried[e.Way] = e
	}
	return tried, err
}

// stage is the server, the candidates and their state.
type stage struct {
	cluster *pgcluster.Cluster
	box     *sandbox.Sandbox // ends the candidates if the demo is killed
	log     *history.Log
	board   board
	view    view
	fail    context.CancelCauseFunc // ends the demo

	pool     *sql.DB
	observer *elector.Elector // asks the server who leads; never campaigns

	hired      int // candidates so far, for their names
	candidates []*candidate
}

func newStage(cluster *pgcluster.Cluster, fail context.CancelCauseFunc) (_ *stage, err error) {
	s := &stage{cluster: cluster, log: new(history.Log), fail: fail}
	if s.pool, err = sql.Open("pgx", cluster.DSN()); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if s.observer, err = elector.New(s.pool, election, options...); err != nil {
		return nil, errors.Join(err, s.pool.Close())
	}
	if s.box, err = sandbox.New(); err != nil {
		return nil, errors.Join(err, s.pool.Close())
	}
	return s, nil
}

// stop ends all processes.
func (s *stage) stop() error {
	for _, c := range s.candidates {
		c.kill()
	}
	return errors.Join(s.box.Destroy(), s.pool.Close())
}

// addCandidate starts a candidate and returns when its process is ready.
func (s *stage) addCandidate(ctx context.Context, d driver) (*candidate, error) {
	name := string(rune('A' + s.hired))
	s.hired++
	c, err := startCandidate(spec{Name: name, Driver: d, DSN: s.cluster.DSN()}, s.box, s.log, s.fail)
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
