//go:build unix

package examples_test

import (
	"bufio"
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/examples"
	"github.com/pgelector/pgelector/roster"
)

// follower serves the route of a leader on a candidate that has no hook and does not lead.
func follower(t *testing.T, pool *sql.DB, address func(*elector.Elector) func(context.Context, string) *url.URL) (get func() (status int, to string)) {
	t.Helper()
	answer := following(t, pool, address)
	return func() (int, string) {
		return answer(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://here/work?x=1", nil))
	}
}

func following(t *testing.T, pool *sql.DB, address func(*elector.Elector) func(context.Context, string) *url.URL) (answer func(*http.Request) (status int, to string)) {
	t.Helper()
	e, err := elector.New(pool, "example", elector.WithCandidateID("follower"))
	check(t, err)
	handler := examples.LeaderOnly(e, address(e), func(http.ResponseWriter, *http.Request, *elector.Term) { t.Error("a follower serves the route") })
	return func(r *http.Request) (int, string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code, w.Header().Get("Location")
	}
}

func listed(addresses map[string]*url.URL) func(*elector.Elector) func(context.Context, string) *url.URL {
	return func(*elector.Elector) func(context.Context, string) *url.URL {
		return func(_ context.Context, id string) *url.URL { return addresses[id] }
	}
}

func TestAFollowerWithoutAHookRedirectsToTheLeaderOfItsList(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		lead(t, pool, "first")
		get := follower(t, pool, listed(map[string]*url.URL{"first": {Scheme: "http", Host: "one:80"}}))
		if status, to := get(); status != http.StatusTemporaryRedirect || to != "http://one:80/work?x=1" {
			t.Errorf("got %d to %q", status, to)
		}
	})
}

// A request may name a host in its first line, also without a slash, which is no path then.
func TestNoRequestChoosesTheHostOfItsRedirect(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		lead(t, pool, "first")
		answer := following(t, pool, listed(map[string]*url.URL{"first": {Scheme: "http", Host: "one:80"}}))
		for _, target := range []string{"http://evil.example/x", "http://a:b@evil.example/x", "http:evil.example/x", "//evil.example/x", "/%2e%2e//evil.example/x?y=z"} {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("POST " + target + " HTTP/1.1\r\nHost: here\r\n\r\n")))
			check(t, err)
			if status, to := answer(r.WithContext(t.Context())); status != http.StatusTemporaryRedirect || !strings.HasPrefix(to, "http://one:80") {
				t.Errorf("%s is redirected with %d to %q", target, status, to)
			}
		}
	})
}

func TestAFollowerRedirectsToTheAddressThatTheLeaderPublishes(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		c := newCandidate(t, pool, "first")
		published, err := roster.New(pool, roster.WithMetadata(map[string]string{"url": "http://one:80"}))
		check(t, err)
		check(t, published.Migrate(t.Context()))
		check(t, published.Add(c.Elector))
		t.Cleanup(func() { check(t, published.Close(soon(t))) })
		c.start(t)
		get := follower(t, pool, func(e *elector.Elector) func(context.Context, string) *url.URL {
			return examples.RosterAddress(published, e)
		})
		eventually(t, "a follower redirects", func() bool {
			status, to := get()
			return status == http.StatusTemporaryRedirect && to == "http://one:80/work?x=1"
		})
	})
}

// Any role that may connect can take the lock, with any id.
func TestAStrangerWithTheLockGetsNoRequestOfAFollower(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		stranger, err := pool.Conn(t.Context())
		check(t, err)
		defer stranger.Close()
		_, err = stranger.ExecContext(t.Context(), "SET application_name = 'evil.example:80'")
		check(t, err)
		var taken bool
		check(t, stranger.QueryRowContext(t.Context(), "SELECT pg_try_advisory_lock($1)", elector.KeyFromName("example")).Scan(&taken))
		known, err := roster.New(pool, roster.WithMetadata(map[string]string{"url": "http://one:80"}))
		check(t, err)
		check(t, known.Migrate(t.Context()))
		defer func() { check(t, known.Close(soon(t))) }()
		c := newCandidate(t, pool, "first")
		check(t, known.Add(c.Elector))
		c.start(t)
		eventually(t, "a candidate that does not lead is in the roster", func() bool {
			all, err := known.Candidates(t.Context(), c.Key())
			check(t, err)
			return len(all) == 1 && all[0].State == roster.Live
		})
		for name, address := range map[string]func(*elector.Elector) func(context.Context, string) *url.URL{
			"a map": listed(map[string]*url.URL{"first": {Scheme: "http", Host: "one:80"}}),
			"the roster": func(e *elector.Elector) func(context.Context, string) *url.URL {
				return examples.RosterAddress(known, e)
			},
		} {
			if status, to := follower(t, pool, address)(); !taken || status != http.StatusServiceUnavailable || to != "" {
				t.Errorf("with %s: got %d to %q", name, status, to)
			}
		}
	})
}

// One second of requests is one question: a stranger's requests do not become the database's.
func TestManyRequestsToAFollowerAreFewQuestions(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		lead(t, pool, "first")
		asked := 0
		get := follower(t, pool, func(*elector.Elector) func(context.Context, string) *url.URL {
			return func(context.Context, string) *url.URL { asked++; return &url.URL{Scheme: "http", Host: "one:80"} }
		})
		const requests = 1000
		for range requests {
			get()
		}
		if asked < 1 || asked > requests/10 {
			t.Errorf("%d requests were %d questions", requests, asked)
		}
	})
}
