package prometheushooks_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
)

// metricsHandler is the hook to give to elector.WithHooks, and what to serve at
// /metrics.
func metricsHandler(candidateID string) (*prometheushooks.Hook, http.Handler, error) {
	hook, registry := prometheushooks.New(), prometheus.NewRegistry()
	// Without this wrapping there is no label for the candidate.
	named := prometheus.WrapRegistererWith(prometheus.Labels{"candidate": candidateID}, registry)
	if err := named.Register(hook); err != nil {
		return nil, nil, err
	}
	return hook, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

func TestTheCandidateIsALabelForThoseWhoWantIt(t *testing.T) {
	hook, handler, err := metricsHandler("web-1")
	if err != nil {
		t.Fatal(err)
	}
	defer elect(hook, us)()
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if want := `pgelector_leader{candidate="web-1",election="orders"} 1`; !strings.Contains(answer.Body.String(), want) {
		t.Errorf("want %s in\n%s", want, answer.Body)
	}
}
