package health_test

import (
	"database/sql"
	"net/http"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
)

// stand makes a candidate, and the endpoints that tell how it is.
func stand(pool *sql.DB, mux *http.ServeMux) (*elector.Elector, error) {
	monitor, err := health.New(pool)
	if err != nil {
		return nil, err
	}
	e, err := elector.New(pool, "orders", elector.WithHooks(monitor))
	if err != nil {
		return nil, err
	}
	mux.Handle("GET /health", monitor)             // for monitors and people
	mux.Handle("GET /readyz", monitor.Readiness()) // for load balancers
	mux.Handle("GET /livez", monitor.Liveness())   // for whoever restarts processes
	return e, monitor.Add(e)
}

var _ = stand
