//go:build unix

package dashboard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/e2e/browser"
	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/shard"
	"go.uber.org/goleak"
)

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }

// patience bounds the wait for an expected event.
const patience = 2 * time.Minute

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

var check, expect = must.Check, must.Expect

// eventually waits until happened returns true.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// hostile is a candidate's id that a page without escaping would execute.
const hostile = `<img src=x onerror="document.title='hacked'">`

// open starts a browser.
func open(t *testing.T) context.Context {
	t.Helper()
	tab, stop, err := browser.Open(soon(t))
	if errors.Is(err, browser.ErrNone) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(stop)
	return tab
}

// evaluate runs JavaScript in the page; the page itself has none.
func evaluate[T any](t *testing.T, tab context.Context, script string) T {
	t.Helper()
	value, err := chromedp.Run(tab, chromedp.Evaluate[T](script))
	check(t, err)
	return value
}

// attempt runs JavaScript in a page that may be replaced meanwhile, which is an error.
func attempt[T any](tab context.Context, script string) (T, error) {
	return chromedp.Run(tab, chromedp.Evaluate[T](script))
}

// scheme sets the page's colour scheme, light or dark.
func scheme(t *testing.T, tab context.Context, value string) {
	t.Helper()
	_, err := chromedp.Call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}})
	check(t, err)
}

// candidate campaigns until the test ends or stop is called.
func candidate(t *testing.T, pool *sql.DB, election, id string, r *roster.Roster) (rec *hookstest.Recorder, stop func()) {
	t.Helper()
	rec = hookstest.NewRecorder()
	e, err := elector.New(pool, election, elector.WithCandidateID(id), elector.WithRetryInterval(100*time.Millisecond), elector.WithHooks(rec, r),
		elector.WithHealth(func(context.Context) elector.HealthReport { return elector.HealthReport{Score: 0.9} }, elector.HealthPolicy{}))
	check(t, err)
	check(t, r.Add(e))
	check(t, e.Start(context.Background()))
	stop = sync.OnceFunc(func() { expect(t, e.Stop(soon(t))) })
	t.Cleanup(stop)
	return rec, stop
}

// stage starts an election with two candidates; the leader's id is hostile. It returns the
// address of a page with these options and a function that stops the leader.
func stage(t *testing.T, opts ...dashboard.Option) (address string, stop func()) {
	t.Helper()
	pool, err := sql.Open("pgx", shared.Get(t).DSN())
	check(t, err)
	t.Cleanup(func() { expect(t, pool.Close()) })
	r, err := roster.New(pool, roster.WithVersion(hostile),
		roster.WithMetadata(map[string]string{"<script>document.title='hacked'</script>": hostile, "long": strings.Repeat("x", 300)}))
	check(t, err)
	check(t, r.Migrate(soon(t)))
	t.Cleanup(func() { expect(t, r.Close(soon(t))) })
	election := "</style><script>document.title='hacked'</script>" + t.Name()
	first, stop := candidate(t, pool, election, hostile, r)
	_, err = hookstest.Wait[hooks.Elected](soon(t), first, nil)
	check(t, err)
	candidate(t, pool, election, "web-"+t.Name(), r)

	page, err := dashboard.New(pool, append(opts, dashboard.WithRoster(r), dashboard.WithElections(election, "vacant"), dashboard.WithRefresh(time.Second))...)
	check(t, err)
	mux := http.NewServeMux()
	mux.Handle("/admin/elections/", page)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	eventually(t, "both candidates are published, and one is the deputy", func() bool {
		all, err := r.Candidates(soon(t), elector.KeyFromName(election))
		return err == nil && len(all) == 2 && all[1].Deputy
	})
	return server.URL + "/admin/elections/", stop
}

func TestInABrowserThePageShowsHostileTextAndRunsNothing(t *testing.T) {
	address, _ := stage(t)
	tab := open(t)
	messages := chromedp.Console(tab)
	check(t, chromedp.Do(tab, chromedp.Navigate(address+"?refresh=off")))
	if title := evaluate[string](t, tab, `document.title`); title != "1 problem – Elections" { // nobody leads "vacant"
		t.Errorf("the title is %q", title)
	}
	for what, script := range map[string]string{
		"scripts":        `document.scripts.length`,
		"images":         `document.images.length`,
		"things to load": `performance.getEntriesByType("resource").length`,
		"handlers":       `[...document.querySelectorAll("*")].filter(e => [...e.attributes].some(a => a.name.startsWith("on"))).length`,
	} {
		if n := evaluate[int](t, tab, script); n != 0 {
			t.Errorf("the page has %d %s", n, what)
		}
	}
	text := evaluate[string](t, tab, `document.body.innerText`)
	for _, want := range []string{"led by " + hostile, "<script>document.title='hacked'</script>", "nobody leads", "0.9"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %q:\n%s", want, text)
		}
	}
	if version := evaluate[string](t, tab, `document.querySelector("td[data-label=Version]").innerText`); version != hostile {
		t.Errorf("the page shows the version %q", version)
	}
	if deputy := evaluate[string](t, tab, `document.querySelector("tr.deputy th").innerText.trim()`); deputy != "web-"+t.Name() {
		t.Errorf("the page shows %q as the deputy", deputy)
	}
	if colour := evaluate[string](t, tab, `getComputedStyle(document.querySelector("tr.leads .badge")).backgroundColor`); colour != "rgb(218, 251, 225)" {
		t.Errorf("the style is not applied: the badge is %s", colour)
	}
	if bars := evaluate[int](t, tab, `Math.round([...document.querySelectorAll("svg.timeline rect")].reduce((sum, e) => sum + e.getBoundingClientRect().width, 0))`); bars < 100 {
		t.Errorf("the timeline's bars are %d pixels wide", bars)
	}
	evaluate[*string](t, tab, `console.log("that is all")`)
	for message, err := range messages {
		check(t, err)
		if message.Text == "that is all" {
			break
		}
		t.Errorf("the browser's console has a message: %s", message)
	}
}

func TestInABrowserThePageIsAccessible(t *testing.T) {
	address, _ := stage(t, dashboard.WithShards("shards", "1", "2"))
	tab := open(t)
	for _, width := range []int64{320, 360, 768, 1280} {
		for _, theme := range []string{"light", "dark"} {
			scheme(t, tab, theme)
			check(t, chromedp.Do(tab, chromedp.EmulateViewport(width, 800), chromedp.Navigate(address+"?refresh=off")))
			for what, script := range map[string]string{
				"elements that are cut off":      `[...document.body.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).length`,
				"pixels to scroll sideways":      `Math.max(0, document.documentElement.scrollWidth - innerWidth)`,
				"texts that are too faint":       faint,
				"things without a name":          `[...document.querySelectorAll("section, svg, meter, nav")].filter(e => !e.getAttribute("aria-label") && !document.getElementById(e.getAttribute("aria-labelledby"))).length`,
				"headings out of order":          `(h => h.filter((e, i) => i > 0 && e > h[i - 1] + 1).length + (h.filter(e => e == 1).length != 1))([...document.querySelectorAll("h1, h2, h3")].map(e => +e.tagName[1]))`,
				"tables without a caption":       `[...document.querySelectorAll("table")].filter(e => !e.caption || !e.caption.innerText.trim()).length`,
				"cells without a header":         `[...document.querySelectorAll("td")].filter(e => e.closest("table").querySelectorAll("thead th[scope=col]").length <= e.cellIndex || !e.closest("tr").querySelector("th[scope=row]")).length`,
				"rows that are not announced":    `document.querySelectorAll("tr").length - ` + fmt.Sprint(announced(t, tab, "row")),
				"headers that are not announced": `document.querySelectorAll("thead th").length - ` + fmt.Sprint(announced(t, tab, "columnheader")),
				"fields without a label":         `[...document.querySelectorAll("input:not([type=hidden])")].filter(e => !e.labels.length).length`,
				"languages too few":              `document.documentElement.lang ? 0 : 1`,
			} {
				if n := evaluate[float64](t, tab, script); n != 0 {
					t.Errorf("%s, %d pixels wide: %v %s", theme, width, n, what)
				}
			}
		}
	}
	scheme(t, tab, "light")
	light := evaluate[string](t, tab, `getComputedStyle(document.body).backgroundColor`)
	scheme(t, tab, "dark")
	if dark := evaluate[string](t, tab, `getComputedStyle(document.body).backgroundColor`); dark == light {
		t.Errorf("the page is %s, in light and in dark", dark)
	}
}

// faint counts the texts whose contrast with their background is below 4.5 to 1, the minimum
// of the Web Content Accessibility Guidelines (1.4.3).
const faint = `(() => {
	const rgb = c => c.match(/[\d.]+/g).map(Number);
	const light = c => rgb(c).slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (rgb(c)[3] !== 0) return c } return "rgb(255, 255, 255)" };
	const contrast = (e, part) => { const [a, b] = [light(getComputedStyle(e, part).color), light(behind(e))]; return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) };
	const all = [...document.body.querySelectorAll("*")].filter(e => !(e instanceof SVGElement));
	return all.filter(e => e.matches("input") || [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())).filter(e => contrast(e) < 4.5).length +
		all.filter(e => getComputedStyle(e, "::before").content != "none" && contrast(e, "::before") < 4.5).length
})()`

// announced returns how many elements have this role for a screen reader.
func announced(t *testing.T, tab context.Context, role string) (n int) {
	t.Helper()
	tree, err := chromedp.Call(tab, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	check(t, err)
	for _, node := range tree.Nodes {
		if node.Role != nil && string(node.Role.Value) == strconv.Quote(role) {
			n++
		}
	}
	return n
}

func TestInABrowserTheTabKeyReachesEverythingInOrder(t *testing.T) {
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprint("job-", i))
	}
	address, _ := stage(t, dashboard.WithElections(names...))
	tab := open(t)
	for _, width := range []int64{360, 768, 1280} {
		for query, fixed := range map[string]string{
			"?refresh=off":        "#main ? q [Search]",
			"?refresh=off&page=2": "#main ?page=2 q [Search]",
			"?refresh=off&q=job":  "#main ?q=job q [Search] ?refresh=off",
		} {
			check(t, chromedp.Do(tab, chromedp.EmulateViewport(width, 800), chromedp.Navigate(address+query)))
			want := evaluate[[]string](t, tab, `[...document.querySelectorAll("main a")].map(e => e.getAttribute("href"))`)
			if len(want) < 10 {
				t.Errorf("%s has only the links %q", query, want)
			}
			want = append(strings.Fields(fixed), want...)
			var got []string
			for range want {
				check(t, chromedp.Do(tab, chromedp.KeyEvent(kb.Tab)))
				at := evaluate[string](t, tab, `(e => e.id || e.getAttribute("href") || "[" + e.innerText.trim() + "]")(document.activeElement)`)
				got = append(got, at)
				if !evaluate[bool](t, tab, `(s => s.outlineStyle == "solid" && parseFloat(s.outlineWidth) >= 2 && s.clipPath == "none")(getComputedStyle(document.activeElement))`) {
					t.Errorf("%d pixels wide: one does not see that %s has the focus", width, at)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %d pixels wide: the Tab key reaches %q\nwant %q", query, width, got, want)
			}
		}
	}
}

func TestInABrowserTheSearchFindsAndThePagesFollow(t *testing.T) {
	var names []string
	for i := range 120 {
		names = append(names, fmt.Sprint("job-", i))
	}
	address, _ := stage(t, dashboard.WithElections(names...))
	tab := open(t)
	expects := func(what string, first, last string, rows int) {
		t.Helper()
		eventually(t, what, func() bool { // the browser may still be loading
			all, err := attempt[[]string](tab, `document.readyState != "complete" ? null : [...document.querySelectorAll("table:not(section *) tbody th")].map(e => e.innerText)`)
			return err == nil && all != nil && len(all) == rows && (rows == 0 || all[0] == first && all[rows-1] == last)
		})
	}
	click := func(selector string) {
		t.Helper()
		check(t, chromedp.Do(tab, chromedp.Click(selector)))
	}
	search := func(text string) {
		t.Helper()
		evaluate[*string](t, tab, `document.querySelector("#q").select()`)
		check(t, chromedp.Do(tab, chromedp.KeyEvent(text+kb.Enter)))
	}
	check(t, chromedp.Do(tab, chromedp.Navigate(address+"?refresh=off")))
	expects("all", "job-0", "job-49", 50)
	search("job-")
	eventually(t, "the search is done", func() bool {
		done, err := attempt[bool](tab, `document.querySelector("form a") != null`)
		return err == nil && done
	})
	expects("the first page", "job-0", "job-49", 50)
	click(`a[rel=next]`)
	expects("the second page", "job-50", "job-99", 50)
	click(`a[rel=next]`)
	expects("the last page", "job-100", "job-119", 20)
	click(`a[rel=prev]`)
	expects("the second page again", "job-50", "job-99", 50)
	search("JOB-11")
	expects("what the search found", "job-11", "job-119", 11)
	click(`a[href="#e` + strconv.FormatInt(elector.KeyFromName("job-115"), 10) + `"]`)
	eventually(t, "the name leads to its section", func() bool {
		return evaluate[bool](t, tab, `(e => e && e.innerText == "job-115" && e.getBoundingClientRect().top > -1 && e.getBoundingClientRect().bottom <= innerHeight)(document.querySelector(":target"))`)
	})
	search("WEB-" + t.Name())
	election := "</style><script>document.title='hacked'</script>" + t.Name()
	expects("the election of the candidate", election, election, 1)
	search(hostile + "?")
	expects("nothing", "", "", 0)
	if text := evaluate[string](t, tab, `document.querySelector("[role=status]").innerText`); !strings.Contains(text, hostile+"?") {
		t.Errorf("a search that finds nothing says %q", text)
	}
	click(`form a`)
	expects("all", "job-0", "job-49", 50)
}

func TestInABrowserThePageRefreshesItselfUntilItIsPaused(t *testing.T) {
	address, stop := stage(t)
	tab := open(t)
	check(t, chromedp.Do(tab, chromedp.Navigate(address)))
	shows := func(text string) bool {
		shown, err := attempt[string](tab, `document.body ? document.body.innerText : ""`)
		return err == nil && strings.Contains(shown, text)
	}
	if !shows("led by " + hostile) {
		t.Fatal("the page does not show who leads")
	}
	stop()
	eventually(t, "the page shows the next leader", func() bool { return shows("led by web-" + t.Name()) })
	check(t, chromedp.Do(tab, chromedp.Click(`a[href="?refresh=off"]`)))
	eventually(t, "it is paused", func() bool { return shows("paused") })
	if n := evaluate[int](t, tab, `document.querySelectorAll("meta[http-equiv]").length`); n != 0 {
		t.Error("a paused page refreshes itself")
	}
	check(t, chromedp.Do(tab, chromedp.Click(`a[href="?"]`)))
	eventually(t, "it is not paused any more", func() bool { return shows("pause") && !shows("paused") })
	withoutScripts(t, tab, address)
}

// withoutScripts checks that a page whose scripts do not run reloads, until one wants to search, or to read.
func withoutScripts(t *testing.T, tab context.Context, address string) {
	t.Helper()
	off := func(value bool) {
		_, err := chromedp.Call(tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: value})
		check(t, err)
	}
	off(true)
	defer off(false)
	check(t, chromedp.Do(tab, chromedp.Navigate(address)))
	evaluate[*string](t, tab, `(document.body.dataset.first = "yes", undefined)`)
	eventually(t, "the page reloads", func() bool {
		first, err := attempt[bool](tab, `document.readyState == "complete" && document.body.dataset.first != "yes"`)
		return err == nil && first
	})
	if !evaluate[bool](t, tab, `document.querySelector("form").hidden && document.querySelector(".still input").readOnly`) {
		t.Error("one can type what the next reload would forget")
	}
	check(t, chromedp.Do(tab, chromedp.Click(`.still a`)))
	eventually(t, "the search is there, and nothing reloads", func() bool {
		at, err := attempt[bool](tab, `document.activeElement.id == "q" && !document.querySelector("form").hidden && document.querySelector("meta[http-equiv]") == null`)
		return err == nil && at
	})
}

func TestInABrowserThePageShowsAGroupOfShardsInOneSection(t *testing.T) {
	pool, err := sql.Open("pgx", shared.Get(t).DSN())
	check(t, err)
	defer pool.Close()
	ctx, stop := context.WithCancel(t.Context())
	all := shard.Numbers(1000)
	done := make(chan error, 2)
	for _, id := range []string{hostile, "web-2"} {
		go func() {
			done <- shard.Run(ctx, pool, t.Name(), all, func(ctx context.Context, _ string, _ *elector.Term) error {
				<-ctx.Done()
				return nil
			}, shard.WithSession(elector.WithCandidateID(id)))
		}()
	}
	defer func() {
		stop()
		<-done
		<-done
	}()
	page, err := dashboard.New(pool, dashboard.WithShards(t.Name(), all.Names()...))
	check(t, err)
	server := httptest.NewServer(page)
	defer server.Close()
	tab := open(t)
	eventually(t, "the page shows the spread", func() bool {
		check(t, chromedp.Do(tab, chromedp.Navigate(server.URL+"?refresh=off")))
		shown := strings.Join(strings.Fields(evaluate[string](t, tab, `document.getElementById("g1").parentElement.innerText`)), " ")
		return strings.Contains(shown, "all 1000 shards led by 2 members") && strings.Contains(shown, hostile+" 500") && strings.Contains(shown, "web-2 500")
	})
	see(t, tab, server.URL+"?refresh=off", "group", func(s sight) { fit(t, tab, s) })
	if rows := evaluate[int](t, tab, `document.querySelector("table").tBodies[0].rows.length`); rows != 1 {
		t.Errorf("the group is %d rows of the overview", rows)
	}
	if text := evaluate[string](t, tab, `document.body.innerText`); strings.Contains(text, "more") || strings.Contains(text, "Other advisory locks") {
		t.Errorf("the page shows the locks of the group one by one:\n%s", text)
	}
	if title := evaluate[string](t, tab, `document.title`); title != "Elections" {
		t.Errorf("the title is %q", title)
	}
}
