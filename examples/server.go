package examples

import (
	"context"
	"errors"
	"net/http"

	"github.com/pgelector/pgelector/health"
)

// WithProbes returns app's handler with the endpoints that Kubernetes asks: /livez and
// /readyz. A follower is ready, too: it serves what needs no leader.
func WithProbes(app http.Handler, m *health.Monitor) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", m.Liveness())
	mux.Handle("GET /readyz", m.Readiness())
	mux.Handle("/", app)
	return mux
}

// CheckElections is a check for a library of health checks, such as alexliesenfeld/health
// or hellofresh/health-go. It fails if nobody leads, or the leader is unknown.
func CheckElections(m *health.Monitor) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		for _, e := range m.Check(ctx).Elections {
			if e.Status != health.Healthy {
				err = errors.Join(err, errors.New(e.Election+": "+e.Why))
			}
		}
		return err
	}
}
