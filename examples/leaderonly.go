package examples

import (
	"net/http"
	"net/url"

	"github.com/pgelector/pgelector/elector"
)

// LeaderOnly serves a route on the leader alone. A follower redirects to the leader's address,
// which address makes of the leader's candidate id, or answers 503 if it knows none.
//
// Do not make leadership the readiness of a pod: in a rolling update the new pods would wait to
// lead, and the old leader for them to be ready. A request that the old leader has accepted may
// end after its term: fence what it writes, by term.InTx or the token.
func LeaderOnly(e *elector.Elector, address func(candidateID string) *url.URL, route func(http.ResponseWriter, *http.Request, *elector.Term)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if term, leading := e.Term(); leading && term.Valid() {
			route(w, r, term)
			return
		}
		id, _ := e.LastLeader()
		to := (*url.URL)(nil)
		if id != "" && id != e.CandidateID() {
			to = address(id)
		}
		if to == nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "nobody is known to lead", http.StatusServiceUnavailable)
			return
		}
		there := *r.URL
		there.Scheme, there.Host = to.Scheme, to.Host
		http.Redirect(w, r, there.String(), http.StatusTemporaryRedirect)
	})
}
