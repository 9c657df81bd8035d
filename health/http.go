package health

import (
	"encoding/json"
	"net/http"
)

// ServeHTTP answers 503 if an election is unhealthy, the code of [WithDegradedCode] if one
// is degraded, and 200 otherwise.
func (m *Monitor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	report := m.Check(r.Context())
	code := http.StatusOK
	switch report.Status {
	case Unhealthy:
		code = http.StatusServiceUnavailable
	case Degraded:
		code = m.degradedCode
	}
	answerWith(w, code, report)
}

// Readiness returns a handler that answers 503 if an election is unhealthy, and 200
// otherwise, even while nobody leads.
func (m *Monitor) Readiness() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerUnlessUnhealthy(w, m.Check(r.Context()))
	})
}

// Liveness returns a handler that answers 503 while work of this process has overrun its
// term (elector.ErrOverrun) and not returned, and 200 otherwise. It does not ask the
// server.
func (m *Monitor) Liveness() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answerUnlessUnhealthy(w, m.CheckLive())
	})
}

func answerUnlessUnhealthy(w http.ResponseWriter, report Report) {
	code := http.StatusOK
	if report.Status == Unhealthy {
		code = http.StatusServiceUnavailable
	}
	answerWith(w, code, report)
}

func answerWith(w http.ResponseWriter, code int, report Report) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(report) // the client may be gone
}
