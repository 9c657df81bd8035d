//go:build unix

package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/exit"
)

// view is what the endpoints tell, as the hooks have seen it.
type view struct {
	mu       sync.Mutex
	reached  bool // the last question to the server was answered
	id       string
	pid      int32
	observed time.Time
}

func (v *view) answer(reached bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reached = reached
}

func (v *view) leader(e hooks.LeaderChanged) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.id, v.pid, v.observed = e.Current, e.PID, e.At
}

// leadership is the JSON of /leader.
type leadership struct {
	Election  string     `json:"election"`
	Key       int64      `json:"key,string"`
	Candidate string     `json:"candidate"`
	Leading   bool       `json:"leading"`
	Token     int64      `json:"token,string,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	Deadline  *time.Time `json:"deadline,omitempty"`
	Leader    string     `json:"leader"` // the last one seen, perhaps another; "" if none was
	Command   int        `json:"command_pid,omitempty"`
}

// serveHTTP serves until stop is called.
func (r *runner) serveHTTP() (stop func(), err error) {
	if r.HTTP == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", r.HTTP)
	if err != nil {
		return nil, exit.With(exit.Failure, fmt.Errorf("--http: %w", err))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", r.ready)
	mux.HandleFunc("GET /leader", r.leader)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.Log.Error("the HTTP endpoints have ended", "error", err)
		}
	}()
	r.Log.Info("HTTP endpoints", "address", listener.Addr().String())
	return func() { _ = server.Close() }, nil
}

// ready says whether this candidate could be elected now, or leads.
func (r *runner) ready(w http.ResponseWriter, _ *http.Request) {
	r.seen.mu.Lock()
	reached := r.seen.reached
	r.seen.mu.Unlock()
	if reached || r.elector.IsLeader() {
		fmt.Fprintln(w, "ok")
		return
	}
	http.Error(w, "the database has not answered the last attempt", http.StatusServiceUnavailable)
}

// leader answers 200 on the leader, and 503 on every other candidate.
func (r *runner) leader(w http.ResponseWriter, _ *http.Request) {
	l := leadership{Election: r.Election, Key: r.elector.Key(), Candidate: r.elector.CandidateID()}
	r.seen.mu.Lock()
	l.Leader = r.seen.id
	r.seen.mu.Unlock()
	status := http.StatusServiceUnavailable
	if term, leading := r.elector.Term(); leading {
		since, deadline := term.ElectedAt().UTC(), term.Deadline().UTC()
		l.Leading, l.Token, l.Since, l.Deadline, l.Leader = true, term.Token(), &since, &deadline, l.Candidate
		status = http.StatusOK
	}
	r.mu.Lock()
	if r.child != nil {
		l.Command = r.child.PID()
	}
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(l)
}
