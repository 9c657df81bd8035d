//go:build unix

package runner

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
)

// endpoints holds the state that the HTTP endpoints report, from the elector's hooks.
type endpoints struct {
	monitor *health.Monitor
	counts  *prometheushooks.Hook

	mu     sync.Mutex
	leader string // the id of the last leader seen
	deputy bool   // this candidate is the deputy
	away   bool   // the last attempt has failed, so nobody knows who leads
}

func newEndpoints(pool *sql.DB) (*endpoints, error) {
	monitor, err := health.New(pool)
	if err != nil {
		return nil, err
	}
	return &endpoints{monitor: monitor, counts: prometheushooks.New()}, nil
}

func (p *endpoints) hook() hooks.Hook {
	return hooks.Join(p.monitor, p.counts, hooks.Funcs{
		LeaderChanged: func(_ context.Context, e hooks.LeaderChanged) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.leader = e.Current
		},
		Campaign: func(_ context.Context, e hooks.Campaign) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.deputy, p.away = e.Deputy, e.Outcome == hooks.Failed
		},
	})
}

// last returns who leads, "" if that is not known, and whether this candidate is the deputy.
func (p *endpoints) last() (leader string, deputy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return "", false
	}
	return p.leader, p.deputy
}

// metrics returns the metrics of the election, the Go runtime and the process.
func (p *endpoints) metrics() (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{p.counts, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
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
	Leader    string     `json:"leader"` // the last leader seen; "" if none
	Deputy    bool       `json:"deputy"` // this candidate is the deputy
	Command   int        `json:"command_pid,omitempty"`
}

// serveHTTP serves until stop is called.
func (r *runner) serveHTTP() (stop func(), err error) {
	ready := r.served.monitor.Readiness()
	if !r.hasCommand() {
		ready = http.HandlerFunc(r.leader)
	}
	return serveHTTP(r.Config, r.served, map[string]http.Handler{"GET /healthz": r.served.monitor.Liveness(), "GET /readyz": ready,
		"GET /leader": http.HandlerFunc(r.leader)})
}

// serveHTTP serves these and the metrics until stop is called.
func serveHTTP(c Config, served *endpoints, these map[string]http.Handler) (stop func(), err error) {
	if c.HTTP == "" {
		return func() {}, nil
	}
	metrics, err := served.metrics()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", c.HTTP)
	if err != nil {
		return nil, fmt.Errorf("--http %s: %w", c.HTTP, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	for pattern, handler := range these {
		mux.Handle(pattern, handler)
	}
	server := newServer(mux)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.Log.Error("the HTTP endpoints failed", "error", err)
		}
	}()
	c.Log.Info("HTTP endpoints", "address", listener.Addr().String())
	return func() { _ = server.Close() }, nil
}

const (
	requestTimeout = 5 * time.Second // for reading a request, and for writing an answer
	idleTimeout    = time.Minute     // between two requests: longer than usual probe intervals
)

// newServer limits every phase of a connection. By default net/http limits none, so a silent
// client would keep its connection.
func newServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout}
}

// leader answers 200 on the leader and 503 on every other candidate.
func (r *runner) leader(w http.ResponseWriter, _ *http.Request) {
	l := leadership{Election: r.Election, Key: r.elector.Key(), Candidate: r.elector.CandidateID()}
	l.Leader, l.Deputy = r.served.last()
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
