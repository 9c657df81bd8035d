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

// A Handler serves the page. It may serve any number of requests at once.
type Handler struct {
	title   string
	names   []string
	roster  *roster.Roster
	refresh time.Duration
	window  time.Duration
	watch   watch
}

var _ http.Handler = (*Handler)(nil)

// New makes the page of the database that the pool connects to, which must be
// a primary: a standby knows nothing of its primary's locks. It asks nothing yet.
// An argument or option that cannot be used is an error that wraps ErrConfig.
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
	s := source{pool, h.roster, h.names}
	h.watch.look, h.watch.room = s.look, s.room
	return h, nil
}

var (
	//go:embed page.html
	pageText string
	//go:embed style.css
	style string

	pageTemplate = template.Must(template.New("page").Parse(pageText))
	styleHash    = sha256.Sum256([]byte(style))

	// policy lets nothing in but the page's own style, which is known by its hash.
	policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(styleHash[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)

// ServeHTTP answers GET and HEAD at whatever path it is mounted. The query
// refresh=off gives a page that does not refresh itself. The status is 503 if the
// server cannot be asked; the page then says why, and shows what was known before.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "this page can only be read", http.StatusMethodNotAllowed)
		return
	}
	facts, err := h.watch.facts(r.Context())
	p := h.page(facts, err)
	p.Paused = r.URL.Query().Get("refresh") == "off"
	var text bytes.Buffer
	if err := pageTemplate.Execute(&text, p); err != nil {
		http.Error(w, "the page could not be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(text.Bytes()) // the reader has gone: there is nobody to tell
}
