//go:build unix

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/supervise"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	hcloghooks "github.com/pgelector/pgelector/hooks/hclog"
	"github.com/pgelector/pgelector/shard"
)

// shards is one "pgelector run --shards": a member of a group, which runs a command for each
// shard that it leads.
type shards struct {
	Config
	reaper *supervise.Reaper
	served *endpoints

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	children map[string]*supervise.Child // by shard
	waits    map[string]time.Duration    // before the command of a shard runs again
	leaving  os.Signal                   // the signal that ends this program, if any
	answered bool                        // the server answered an attempt
	ready    bool                        // and the last attempt or heartbeat
	code     int                         // of the last command that failed, or was killed, after that signal
}

// runShards is Run for a group of shards.
func runShards(c Config) error {
	pool, err := c.Target.Open(connect.Election)
	if err != nil {
		return exit.Classify(err)
	}
	defer closePool(pool)
	var s *shards
	c.reaper = func() *supervise.Reaper { return s.reaper }
	s = &shards{Config: c, children: map[string]*supervise.Child{}, waits: map[string]time.Duration{}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	if s.served, err = newEndpoints(pool); err != nil {
		return err
	}
	id, err := elector.New(pool, c.Group, c.options()...) // checks the options, and draws the id
	if err != nil {
		return exit.Classify(exit.ByFlags(err, c.notes))
	}
	s.Candidate = id.CandidateID()
	session := append(s.sessionOptions(), elector.WithHooks(
		hooks.Funcs{Heartbeat: s.onHeartbeat, Error: s.onError, Campaign: s.onCampaign},
		withoutOverruns(s.lives, s.served.hook(), sayingSeat(c.Group, hcloghooks.New(c.Log)))))
	if s.reaper, err = supervise.NewReaper(); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	go s.dispatch(supervise.Catch())
	stop, err := serveHTTP(c, s.served, map[string]http.Handler{"GET /healthz": s.served.monitor.Liveness(),
		"GET /readyz": http.HandlerFunc(s.serveReady), "GET /leader": http.HandlerFunc(s.serveShards)})
	if err != nil {
		return err
	}
	defer stop()
	opts := []shard.Option{shard.WithSession(session...), shard.WithMoves(c.Moves), shard.WithSticky(c.Sticky)}
	if c.Most > 0 {
		counted := s.served.counts.Beyond(c.Group)
		opts = append(opts, shard.WithMost(c.Most), shard.WithBeyond(func(ctx context.Context, n int, unled []string) {
			counted(ctx, n, unled)
			s.onBeyond(n, unled)
		}))
	}
	err = shard.Run(s.ctx, pool, c.Group, shard.Numbers(c.Shards), s.lead, opts...)
	s.mu.Lock()
	defer s.mu.Unlock()
	var own *exit.Error
	switch {
	case s.code != exit.OK:
		return exit.Silently(s.code)
	case errors.As(context.Cause(s.ctx), &own):
		return own
	}
	return explain(c.Target, err)
}

// lead runs the command of a shard during its term, and returns when no process of it is left.
func (s *shards) lead(ctx context.Context, name string, term *elector.Term) error {
	if !ask.Sleep(ctx, s.waitOf(name)) {
		return nil
	}
	log := s.Log.With("shard", name)
	began := time.Now()
	child, err := s.start(name, term)
	if err != nil || child == nil {
		return err
	}
	select {
	case <-child.Started():
		if pid := child.PID(); pid != 0 {
			log.Info("command started", "pid", pid, "command", s.Command[0], "token", strconv.FormatInt(term.Token(), 10))
		}
	case <-ctx.Done():
	}
	select {
	case <-child.Gone():
	case <-ctx.Done():
		child.Stop()
		log.Info("shard given up or lost, ending the command", "pid", child.PID(), "grace", s.Grace, "cause", context.Cause(ctx))
		<-child.Gone()
	}
	result := child.Result()
	lasted := time.Since(began)
	log.Info("command ended", "pid", child.PID(), "result", result.String(), "lasted", lasted.Round(time.Millisecond))
	s.end(name, result, lasted, ctx.Err() == nil)
	return nil
}

func (s *shards) waitOf(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits[name]
}

// start starts the command, or returns nil if the run is over or the term is not valid.
func (s *shards) start(name string, term *elector.Term) (*supervise.Child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || !term.Valid() {
		return nil, nil
	}
	election := shard.Election(s.Group, name)
	child, err := s.reaper.Start(supervise.Options{
		Guard: s.Guard, Command: s.Command,
		Env: append(environment(election, s.Candidate, elector.KeyFromName(election), term),
			EnvGroup+"="+s.Group,
			EnvShard+"="+name,
			EnvShards+"="+strconv.Itoa(s.Shards)),
		Grace: s.Grace, Drain: s.Drain, Deadline: term.Deadline(), NoInput: true,
	})
	if err != nil {
		return nil, err
	}
	s.children[name] = child
	return child, nil
}

// end records how the command of a shard ended, and whether it ended by itself.
func (s *shards) end(name string, result supervise.Result, lasted time.Duration, byItself bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.children, name)
	switch wait := s.waits[name]; {
	case !byItself || lasted >= s.RestartDelayMax:
		delete(s.waits, name)
	default: // shard.Run waits for a second, too
		s.waits[name] = min(max(2*wait, s.RestartDelay), s.RestartDelayMax)
	}
	if s.leaving != nil && result.Code != exit.OK && result.Code != exit.SignalBase+int(syscall.SIGTERM) {
		s.code = result.Code
	}
}

func (s *shards) onHeartbeat(_ context.Context, e hooks.Heartbeat) {
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
	if child := s.child(e.Election); child != nil {
		child.Extend(e.Deadline)
	}
}

// child returns the child that runs for an election, or nil.
func (s *shards) child(election string) *supervise.Child {
	name, _ := strings.CutPrefix(election, shard.Election(s.Group, ""))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.children[name]
}

func (s *shards) lives(election string) bool {
	child := s.child(election)
	return child != nil && child.Alive()
}

// onError gives up if a server that has never answered refuses the login.
func (s *shards) onError(_ context.Context, e hooks.Failure) {
	s.mu.Lock()
	answered := s.answered
	if e.Op == hooks.OpCampaign || e.Op == hooks.OpHeartbeat {
		s.ready = false
	}
	s.mu.Unlock()
	if e.Op == hooks.OpCampaign && !answered && connect.Refused(e.Err) {
		s.cancel(explain(s.Target, e.Err))
	}
}

func (s *shards) onCampaign(_ context.Context, e hooks.Campaign) {
	if e.Outcome != hooks.Failed {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answered, s.ready = true, true
	}
}

// dispatch makes this member leave the group on a signal that asks the program to end: all
// commands are ended in order. Other signals are forwarded to them.
func (s *shards) dispatch(signals <-chan os.Signal) {
	for sig := range signals {
		s.mu.Lock()
		if supervise.Ends(sig, true) { // a member lives on without a command
			s.leaving = sig
			s.cancel(signalled(sig))
		} else {
			for _, child := range s.children {
				child.Signal(sig)
			}
		}
		s.mu.Unlock()
	}
}

// serveReady answers 200 while the server answers this member, and 503 otherwise.
func (s *shards) serveReady(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// membership is the JSON of /leader.
type membership struct {
	Group     string         `json:"group"`
	Shards    int            `json:"shards"`
	Candidate string         `json:"candidate"`
	Commands  map[string]int `json:"commands"` // the process ids, by shard
}

// serveShards shows the shards whose command runs.
func (s *shards) serveShards(w http.ResponseWriter, _ *http.Request) {
	m := membership{Group: s.Group, Shards: s.Shards, Candidate: s.Candidate, Commands: map[string]int{}}
	s.mu.Lock()
	for name, child := range s.children {
		m.Commands[name] = child.PID()
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(m)
}

// onBeyond says which shards no host may lead (--most).
func (s *shards) onBeyond(n int, unled []string) {
	if n > 0 {
		s.Log.Warn("the hosts may not lead all shards: start more, or raise --most", "shard", fmt.Sprint(unled[:min(len(unled), 20)]))
	} else {
		s.Log.Info("the hosts may lead all shards")
	}
}
