package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
)

// pageOf returns a handler with fixed facts. It has looked, and looks no more: a busy machine would be late.
func pageOf(t *testing.T, f facts, err error, opts ...Option) *Handler {
	t.Helper()
	pool, _, mockErr := sqlmock.New()
	if mockErr != nil {
		t.Fatal(mockErr)
	}
	t.Cleanup(func() { pool.Close() })
	h, optErr := New(pool, opts...)
	if optErr != nil {
		t.Fatal(optErr)
	}
	h.watch.look = func(context.Context) (facts, error) { return f, err }
	h.watch.looking = make(chan struct{})
	h.watch.lookOnce(h.watch.looking)
	h.watch.until = time.Now().Add(24 * time.Hour)
	return h
}

func get(h http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// factsOf returns an election with two terms and three candidates, all with the same text.
func factsOf(text string) facts {
	key, health := elector.KeyFromName(text), 0.25
	return facts{
		at: noon,
		locks: []db.AdvisoryLocksRow{
			{Key: key, Granted: true, Pid: 11, ApplicationName: text, Usename: text, ClientAddr: text},
			{Key: key, Pid: 12, ApplicationName: text + "2", Usename: text},
			{Key: 99, Granted: true, Pid: 13, ApplicationName: text, Usename: text},
		},
		candidates: []roster.Candidate{
			{Election: text, Key: key, CandidateID: text, State: roster.Live, Version: text, Health: &health, Metadata: map[string]string{text: text}},
			{Election: text, Key: key, CandidateID: text + "3", State: roster.Silent},
		},
		terms: []roster.Term{
			{Election: text, Key: key, Token: 20, CandidateID: text, ElectedAt: noon.Add(-time.Hour)},
			{Election: text, Key: key, Token: 10, CandidateID: text + "3", ElectedAt: noon.Add(-3 * time.Hour), EndedAt: noon.Add(-2 * time.Hour), Reason: text, Err: text},
		},
	}
}

func TestThePageCanOnlyBeRead(t *testing.T) {
	h := pageOf(t, factsOf("orders"), nil)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"} {
		if w := get(h, method, "/"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s is answered by %d, allowing %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
	server := httptest.NewServer(h)
	defer server.Close()
	response, err := http.Head(server.URL)
	if err != nil || response.StatusCode != http.StatusOK || response.ContentLength == 0 {
		t.Fatalf("HEAD is answered by %+v, %v", response, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestThePageAnswersAtAnyPath(t *testing.T) {
	h := pageOf(t, factsOf("orders"), nil)
	mux := http.NewServeMux()
	mux.Handle("/admin/elections/", http.StripPrefix("/admin", h))
	mux.Handle("/elections", h)
	first := get(h, "GET", "/").Body.String()
	for _, target := range []string{"/admin/elections/", "/admin/elections/deeper", "/elections"} {
		if w := get(mux, "GET", target); w.Code != http.StatusOK || w.Body.String() != first {
			t.Errorf("%s is answered by %d, or another page", target, w.Code)
		}
	}
	page, _, _ := strings.Cut(first, "<script>")
	for _, address := range regexp.MustCompile(`(?:href|src|action|url)\s*=?\s*["(]([^")]*)`).FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(address[1], "?") && !strings.HasPrefix(address[1], "#") {
			t.Errorf("the page names the address %q", address[1])
		}
	}
}

func TestTheContentSecurityPolicyAllowsOnlyThePagesStyleAndScript(t *testing.T) {
	w := get(pageOf(t, factsOf("orders"), nil), "GET", "/")
	sum := func(element string) string {
		found := regexp.MustCompile("(?s)<"+element+">(.*?)</"+element+">").FindAllStringSubmatch(w.Body.String(), -1)
		if len(found) != 1 {
			t.Fatalf("the page has %d of %s", len(found), element)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	want := fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'",
		sum("style"), sum("script"))
	for name, want := range map[string]string{"Content-Security-Policy": want, "X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Content-Type": "text/html; charset=utf-8"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s is %q\nwant %q", name, got, want)
		}
	}
	for _, never := range []string{"<script ", " style=", " onload", "javascript:"} {
		if strings.Contains(w.Body.String(), never) {
			t.Errorf("the page has %q", never)
		}
	}
}

func TestWithoutScriptsThePageReloadsUntilTheSearchIsChosen(t *testing.T) {
	h := pageOf(t, factsOf("orders"), nil)
	running, paused := get(h, "GET", "/").Body.String(), get(h, "GET", "/?refresh=off").Body.String()
	for _, want := range []string{`<noscript><meta http-equiv="refresh" content="10"></noscript>`, `<div class="search still"`, `<form class="search" role="search" hidden>`} {
		if !strings.Contains(running, want) || strings.Contains(paused, want) {
			t.Errorf("only a page that refreshes itself has %s", want)
		}
	}
	if strings.Contains(paused, "<script") || !strings.Contains(paused, `<form class="search" role="search">`) {
		t.Error("a page at rest has a script, or no search")
	}
}

// The page shows what candidates publish as text: it has the same elements and attributes
// as a page with plain texts.
func TestWhatCandidatesPublishIsShownAsText(t *testing.T) {
	skeleton := func(text string) string {
		h := pageOf(t, factsOf(text), nil, WithTitle(text))
		h.names = []string{"orders", text} // WithElections refuses what does not print
		h.roster = new(roster.Roster)
		body := get(h, "GET", "/?q="+url.QueryEscape(text)).Body.String()
		var all []string
		for _, tag := range regexp.MustCompile(`<[^>]*>`).FindAllString(body, -1) {
			all = append(all, regexp.MustCompile(`"[^"]*"`).ReplaceAllString(tag, `""`))
		}
		return strings.Join(all, "\n")
	}
	plain := skeleton("plain")
	for _, text := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</style><script>alert(1)</script>`,
		`</title><svg onload=alert(1)>`, `<!--`, `]]>`, `{{.Style}}`, "javascript:alert(1)", `</svg></section>`, "&lt;b&gt;", "\x00", "\xff\xfe", "`",
	} {
		if got := skeleton(text); got != plain {
			t.Errorf("%q changes the page to\n%s", text, got)
		}
	}
}

func TestAPageSaysThatTheServerIsAwayAndWhatWasKnown(t *testing.T) {
	w := get(pageOf(t, factsOf("orders"), errAway), "GET", "/")
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), errAway.Error()) {
		t.Errorf("got %d:\n%s", w.Code, w.Body)
	}
	h := pageOf(t, facts{}, nil)
	p := h.page(factsOf("orders"), errAway, nil)
	if len(p.Rows) == 0 || p.Away != errAway.Error() || p.AwayFor == "" || p.At.Text != "2026-11-21 12:00:00" || p.Heading() != "No current data – Elections" {
		t.Errorf("got %+v", p)
	}
	f := factsOf("orders")
	f.rosterErr = errors.New("the roster is gone")
	w = get(pageOf(t, f, nil), "GET", "/")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "the roster is gone") || !strings.Contains(w.Body.String(), "led by orders") {
		t.Errorf("without its roster: got %d:\n%s", w.Code, w.Body)
	}
}

func TestAStandbyIsRefusedSinceItHasNoLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock, err := sqlmock.New()
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		mock.ExpectBegin()
		mock.ExpectQuery("-- name: Ping").WillReturnRows(sqlmock.NewRows([]string{"pid", "in_recovery", "rung"}).AddRow(1, true, false))
		h, err := New(pool)
		if err != nil {
			t.Fatal(err)
		}
		if w := get(h, "GET", "/"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "hot standby") {
			t.Errorf("got %d:\n%s", w.Code, w.Body)
		}
	})
}

func TestARefreshCanBePausedAndTurnedOff(t *testing.T) {
	const meta = `http-equiv="refresh"`
	for target, c := range map[string]struct {
		opts []Option
		want bool
	}{
		"/":             {nil, true},
		"/?refresh=off": {nil, false},
		"/never":        {[]Option{WithRefresh(0)}, false},
	} {
		if got := strings.Contains(get(pageOf(t, factsOf("orders"), nil, c.opts...), "GET", target).Body.String(), meta); got != c.want {
			t.Errorf("%s refreshes itself: %v", target, got)
		}
	}
}

func TestLinksKeepTheSearchAndThePause(t *testing.T) {
	f := facts{at: noon}
	for i := range 3 * perPage {
		f.locks = append(f.locks, db.AdvisoryLocksRow{Key: int64(i), Granted: true})
	}
	body := get(pageOf(t, f, nil), "GET", "/?page=2&q=key+%22&refresh=off").Body.String()
	if !strings.Contains(body, `value="key &#34;"`) || !strings.Contains(body, `name="refresh" value="off"`) || !strings.Contains(body, `href="?refresh=off"`) {
		t.Errorf("the form is not that of the search: %s", body)
	}
	body = get(pageOf(t, f, nil), "GET", "/?page=2&q=key+&refresh=off").Body.String()
	for _, want := range []string{"?page=2&amp;q=key", "?q=key&amp;refresh=off", "?page=3&amp;q=key&amp;refresh=off", "?refresh=off"} {
		if !strings.Contains(body, `href="`+want+`"`) {
			t.Errorf("no link to %s: %q", want, regexp.MustCompile(`href="\?[^"]*"`).FindAllString(body, -1))
		}
	}
}

func TestABadOptionIsAnError(t *testing.T) {
	pool, _, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for want, opt := range map[string]Option{
		"WithTitle": WithTitle(""), "election name": WithElections("a", ""), `election name "a\n"`: WithElections("a\n"), `name of a group "a/b"`: WithShards("a/b", "1"),
		`name of a shard " 1"`: WithShards("a", " 1"), "no shards": WithShards("a"), "WithRefresh(1.5s)": WithRefresh(1500 * time.Millisecond), "WithRoster": WithRoster(nil),
		"WithRefresh(999ms)": WithRefresh(999 * time.Millisecond), "WithRefresh(1h0m1s)": WithRefresh(time.Hour + time.Second),
		"WithWindow(59s)": WithWindow(59 * time.Second), "WithWindow(8761h0m0s)": WithWindow(8761 * time.Hour), "option 1 is nil": nil,
	} {
		if _, err := New(pool, opt); !errors.Is(err, elector.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one that wraps elector.ErrConfig and has %q", err, want)
		}
	}
	if _, err := New(nil); !errors.Is(err, elector.ErrConfig) {
		t.Errorf("a nil pool: got error %v", err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
