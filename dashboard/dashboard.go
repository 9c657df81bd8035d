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
// The page works at any path. It runs no script and loads nothing from elsewhere, as its
// Content-Security-Policy enforces. It shows everything that candidates publish as text,
// cut to 200 bytes, 20 pairs of metadata per candidate and 128 KiB of metadata in all. It
// refreshes itself with a meta element; a link pauses that, and so does the search: a refresh
// would empty its field.
//
// A table on top has a row for each election: its leader, since when, the deputy and the
// leader's health. A section for each election follows. A page has 50 elections; a search
// finds the others by their names, or by those of their candidates. A group of shards is one
// row and one section ([WithShards]), however many shards it has.
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
		if err := opt(h); err != nil {
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

	pageTemplate = template.Must(template.New("page").Parse(pageText))
	styleHash    = sha256.Sum256([]byte(style))

	// policy allows only the page's own style, by its hash.
	policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(styleHash[:]) +
		"'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)

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

// Option is an option of New. If its argument is invalid, New returns an error that wraps
// elector.ErrConfig and names the bound.
type Option func(*Handler) error

const (
	defaultTitle   = "Elections"
	defaultRefresh = 10 * time.Second
	minRefresh     = time.Second
	defaultWindow  = 24 * time.Hour
	minWindow      = time.Minute
	maxWindow      = 365 * 24 * time.Hour
)

// WithTitle sets the heading of the page. Default "Elections".
func WithTitle(title string) Option {
	return func(h *Handler) error {
		h.title = title
		if title == "" {
			return fmt.Errorf("WithTitle: the title is empty")
		}
		return nil
	}
}

// WithElections names elections. The page shows them first, in this order, even if nobody
// leads them. Default: none; without a roster the page then shows keys only.
func WithElections(names ...string) Option {
	return func(h *Handler) error {
		h.names = append(h.names, names...)
		for _, name := range names {
			if name == "" {
				return fmt.Errorf("WithElections: a name is empty")
			}
		}
		return nil
	}
}

// WithShards shows the shards of a group (package shard) in one row and section: how many are led, and
// by whom. They, and the seats of the members, are not shown as elections.
func WithShards(group string, names ...string) Option {
	return func(h *Handler) error {
		h.groups = append(h.groups, newShards(group, names))
		if group == "" || len(names) == 0 {
			return fmt.Errorf("WithShards: the group has no name or no shards")
		}
		return nil
	}
}

// WithRoster adds the records of a roster of the same database: elections that had a
// candidate within the last day, their names, candidates, health, metadata and terms.
// Default: none.
func WithRoster(r *roster.Roster) Option {
	return func(h *Handler) error {
		h.roster = r
		if r == nil {
			return fmt.Errorf("WithRoster: the roster is nil")
		}
		return nil
	}
}

// WithRefresh sets how often an open page refreshes itself: 1 s to 1 h in whole seconds, or
// 0 for never. Default 10 s.
func WithRefresh(d time.Duration) Option {
	return func(h *Handler) error {
		h.refresh = d.Truncate(time.Second)
		if d != 0 && (d < minRefresh || d > time.Hour) {
			return fmt.Errorf("WithRefresh(%v): want %v <= interval <= %v, or 0", d, minRefresh, time.Hour)
		}
		return nil
	}
}

// WithWindow sets how far back the timeline goes: 1 min to 365 days. Default 24 h. It shows
// at most the newest 50 terms of an election; fewer if there are more than 100 elections.
func WithWindow(d time.Duration) Option {
	return func(h *Handler) error {
		h.window = d
		if d < minWindow || d > maxWindow {
			return fmt.Errorf("WithWindow(%v): want %v <= window <= %v", d, minWindow, maxWindow)
		}
		return nil
	}
}
