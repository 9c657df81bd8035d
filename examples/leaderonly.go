package examples

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
)

// LeaderOnly serves a route on the leader alone. A follower asks the database who leads, at most once a second, and
// redirects to the address that address has for the leader's candidate id; if it has none (nil), it answers 503.
//
// Never make an address of the id. Any role that may connect can take the lock with any id, and
// the redirect would send it the method, the headers and the body. Look the id up in a list that others cannot
// write: a map of yours, or the roster (RosterAddress).
//
// Do not make leadership the readiness of a pod: in a rolling update the new pods would wait to
// lead, and the old leader for them to be ready. A request that the old leader has accepted may
// end after its term: fence what it writes, by term.InTx or the token.
func LeaderOnly(e *elector.Elector, address func(ctx context.Context, candidateID string) *url.URL, route func(http.ResponseWriter, *http.Request, *elector.Term)) http.Handler {
	known := &leaderAddress{elector: e, address: address}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if term, leading := e.Term(); leading && term.Valid() {
			route(w, r, term)
			return
		}
		to := known.get()
		if to == nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "nobody is known to lead", http.StatusServiceUnavailable)
			return
		}
		there := url.URL{Scheme: to.Scheme, Host: to.Host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery} // and no Opaque
		http.Redirect(w, r, there.String(), http.StatusTemporaryRedirect)
	})
}

// leaderAddress keeps the leader's address for a second, so that many requests are few questions to the database.
type leaderAddress struct {
	elector *elector.Elector
	address func(ctx context.Context, candidateID string) *url.URL

	mu    sync.Mutex
	to    *url.URL // nil if it is not known, or this process
	until time.Time
}

func (l *leaderAddress) get() *url.URL {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.until) {
		return l.to
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second) // not the request's: others wait, too
	defer cancel()
	l.to = nil
	if leader, err := l.elector.Leader(ctx); err == nil && leader.CandidateID != l.elector.CandidateID() {
		l.to = l.address(ctx, leader.CandidateID)
	}
	l.until = time.Now().Add(time.Second)
	return l.to
}

// RosterAddress looks an address up in the metadata of the roster: each candidate publishes its own with
// roster.WithMetadata(map[string]string{"url": "http://10.0.0.7:8080"}). Let nobody else write the roster's tables.
func RosterAddress(candidates *roster.Roster, e *elector.Elector) func(ctx context.Context, candidateID string) *url.URL {
	return func(ctx context.Context, candidateID string) *url.URL {
		all, err := candidates.Candidates(ctx, e.Key())
		if err != nil {
			return nil
		}
		for _, c := range all {
			if c.CandidateID == candidateID && c.State == roster.Live {
				if to, err := url.Parse(c.Metadata["url"]); err == nil && to.Host != "" {
					return to
				}
			}
		}
		return nil
	}
}
