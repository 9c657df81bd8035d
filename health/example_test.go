package health_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
)

// newCandidate returns a candidate, and serves its health.
func newCandidate(pool *sql.DB, mux *http.ServeMux, opts ...elector.Option) (*elector.Elector, error) {
	monitor, err := health.New(pool)
	if err != nil {
		return nil, err
	}
	e, err := elector.New(pool, "orders", opts...)
	if err != nil {
		return nil, err
	}
	mux.Handle("GET /health", monitor)             // for monitoring and people
	mux.Handle("GET /readyz", monitor.Readiness()) // for load balancers
	mux.Handle("GET /livez", monitor.Liveness())   // for whatever restarts processes
	return e, monitor.Add(e)
}

// The check of elector.WithHealth decides who may lead, and the endpoints report it.
func Example() {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open() // sql.Open("pgx", dsn)
	defer pool.Close()

	freeMemory, unhealthy := 0.4, make(chan error)
	hook := hooks.Funcs{Error: func(_ context.Context, f hooks.Failure) { unhealthy <- f.Err }}
	mux := http.NewServeMux()
	e, err := newCandidate(pool, mux, elector.WithCandidateID("web-1"), elector.WithHooks(hook),
		elector.WithHealth(func(context.Context) elector.HealthReport { return elector.HealthReport{Score: freeMemory} }, elector.HealthPolicy{}))
	if err != nil {
		log.Fatal(err)
	}
	if err := e.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-unhealthy)

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest("GET", "/readyz", nil))
	fmt.Println("ready:", answer.Code)
	answer = httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest("GET", "/livez", nil))
	fmt.Println("live:", answer.Code)
	if err := e.Stop(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// elector: the candidate is unhealthy: the score is 0.4, below the minimum of 0.5
	// ready: 503
	// live: 200
}
