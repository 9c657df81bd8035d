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
// the error wraps ErrConfig.
func New(pool *sql.DB, opts ...Option) (*Handler, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil: pass the *sql.DB of your PostgreSQL", ErrConfig)
	}
	h := &Handler{title: defaultTitle, refresh: defaultRefresh, window: defaultWindow}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: option %d is nil", ErrConfig, i+1)
		}
		if err := opt(h); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
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
