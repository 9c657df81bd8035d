// Package dashboard is an http.Handler with a page about the elections of a database: who
// leads, who is the deputy, who stands for election and how healthy they are, and who led when.
//
//	page, err := dashboard.New(pool, dashboard.WithRoster(candidates))
//	mux.Handle("/admin/elections/", page)
//
// # What is not promised
//
//   - The page has no login: whoever can reach it can read it. Mount it behind the login
//     of your other pages.
//   - The page is read-only: it answers GET and HEAD, and writes nothing.
//   - Without a roster the page shows what the server knows: who holds a lock, who is the
//     deputy, and who waits. It shows no other follower, no health and no history. The
//     server knows keys, not names, so name the elections ([WithElections]).
//
// # The page
//
// The page works at any path. It runs one script of its own and loads nothing from elsewhere, as its
// Content-Security-Policy enforces. It shows everything that candidates publish as text,
// cut to 200 bytes, 20 pairs of metadata per candidate and 128 KiB of metadata in all. It
// refreshes itself ([WithRefresh]) and keeps what is open, typed, and scrolled to. A link pauses that.
// Where scripts are off a meta element reloads the page, and the field of the search pauses that, too: a
// reload would take away what is typed.
//
// A table on top has a row for each election: its state, leader and deputy, since when, the
// leader's health, and who led in the last day ([WithWindow]). A section for each election
// follows. A page has 50 elections; a search finds the others by their names, or by those of
// their candidates. A group of shards is one row and one section ([WithShards]), however many
// shards it has.
//
// # Problems
//
// Rows with a problem come first, and their number stands in the title ([WithTitle]). In this
// order they are:
//
//   - Nobody leads. The row says why, if that is known, such as "no candidate is healthy
//     (0.1, 0.3)". An election that was not named is at rest if all its candidates have left.
//   - A candidate says that it is unhealthy (elector.WithHealth).
//   - A leader or deputy was not seen: it has not published within its interval, or its session has
//     sent no statement for half of its lease.
//   - The last follower has gone, so that the election is led without a deputy.
//
// A follower that was not seen is no problem while another follower is seen: a process that was killed comes back under
// another name. The row says "2 candidates, 3 a day ago", and which one, until the roster forgets it
// (roster.WithForgetAfter).
//
// A leader is green if it is known to be well: it was seen, and has not said that it is
// unhealthy. To see when a session sent its last statement, the page's role needs
// pg_read_all_stats or the candidates' role.
//
// # Cost
//
// However many viewers there are, the page asks the server at most once a second: five
// statements in sequence, three without a roster. It uses at most a tenth of a
// connection's time: if an answer takes long, it asks less often. Without viewers it does
// not ask.
//
// On a dead link a driver's call may not return. After 5 s the page abandons such a call,
// shows how old its data is, and asks on another connection 5 s later. With each further
// stuck call the pause doubles, up to 5 min. While half of the pool's connections are
// stuck, or 16, it does not ask.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
)

// A Handler serves the page. It is safe for concurrent use.
type Handler struct {
	title   string
	names   []string
	groups  []shards
	roster  *roster.Roster
	refresh time.Duration
	window  time.Duration
	watch   watch
}

var _ http.Handler = (*Handler)(nil)

// New returns a page about the database of the pool. It must be a primary: a standby does
// not know its primary's locks. New does not connect. If an argument or option is invalid,
// the error wraps elector.ErrConfig.
func New(pool *sql.DB, opts ...Option) (*Handler, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil: pass the *sql.DB of your PostgreSQL", elector.ErrConfig)
	}
	h := &Handler{title: defaultTitle, refresh: defaultRefresh, window: defaultWindow}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: option %d is nil", elector.ErrConfig, i+1)
		}
		if err := opt(h); errors.Is(err, elector.ErrConfig) { // of a name
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("%w: %w", elector.ErrConfig, err)
		}
	}
	s := source{pool, h.roster, h.names, h.groups}
	h.watch.look, h.watch.maxStuck = s.look, s.maxStuck
	return h, nil
}

var (
	//go:embed page.html
	pageText string
	//go:embed style.css
	style string
	//go:embed refresh.js
	script string

	pageTemplate = template.Must(template.New("page").Parse(pageText))

	// policy allows only the page's own style and script, by their hashes, and lets the script ask for the page again.
	policy = "default-src 'none'; style-src " + hash(style) + "; script-src " + hash(script) +
		"; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)

// hash returns the source of a policy that is this text alone.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// ServeHTTP answers GET and HEAD at any path. The query q searches the names of elections,
// groups and candidates, page is the number of the page, and with refresh=off the page does
// not refresh itself. If the server does not answer, the status is 503; the page says why and
// shows the last known state.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
		return
	}
	facts, err := h.watch.facts(r.Context())
	p := h.page(facts, err, r.URL.Query())
	var text bytes.Buffer
	if err := pageTemplate.Execute(&text, p); err != nil {
		http.Error(w, "render the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(text.Bytes()) // the client may be gone
}
