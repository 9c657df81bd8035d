//go:build unix

package dashboard_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/elector"
)

// sights are the widths and colours of the tests.
type sight struct {
	width int64
	theme string
}

var sights = []sight{{390, "light"}, {390, "dark"}, {800, "light"}, {800, "dark"}, {1400, "light"}, {1400, "dark"}}

// see calls look with the page in each width and colour. PGELECTOR_SCREENSHOTS names a directory
// for its pictures.
func see(t *testing.T, tab context.Context, address, name string, look func(s sight)) {
	t.Helper()
	for _, s := range sights {
		scheme(t, tab, s.theme)
		check(t, chromedp.Do(tab, chromedp.EmulateViewport(s.width, 900), chromedp.Navigate(address)))
		look(s)
		if dir := os.Getenv("PGELECTOR_SCREENSHOTS"); dir != "" {
			picture, err := chromedp.Run(tab, chromedp.FullScreenshot(100))
			check(t, err)
			check(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, s.width, s.theme)), picture, 0o644))
		}
	}
}

// greens lists the texts upon green, and what else is green but for the scores' meters.
const greens = `(() => {
	const green = c => { const [r, g, b, a] = c.match(/[\d.]+/g).map(Number); return a !== 0 && g > r + 8 && g > b + 8 };
	return [...document.body.querySelectorAll("*")].filter(e => { const s = getComputedStyle(e); return green(s.backgroundColor) || e instanceof SVGElement && s.fill.startsWith("rgb") && green(s.fill) })
		.map(e => e.textContent.trim());
})()`

// colourful counts what has a colour, but for links, the alert and what is made grey.
const colourful = `(() => {
	const vivid = c => { const [r, g, b, a] = c.match(/[\d.]+/g).map(Number); return a !== 0 && Math.max(r, g, b) - Math.min(r, g, b) > 32 };
	const grey = e => { for (; e; e = e.parentElement) if (getComputedStyle(e).filter == "grayscale(1)") return true; return false };
	return [...document.querySelectorAll("main *:not(a):not(.alert, .alert *)")].filter(e => !e.closest("a") && !grey(e))
		.filter(e => { const s = getComputedStyle(e); return vivid(s.backgroundColor) || vivid(s.color) || e.tagName == "METER" || e instanceof SVGElement && vivid(s.fill) }).length;
})()`

// fits are what must not be on any page.
var fits = map[string]string{
	"elements that are cut off":  `[...document.body.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).length`,
	"pixels to scroll sideways":  `Math.max(0, document.documentElement.scrollWidth - innerWidth)`,
	"texts that are too faint":   faint,
	"ids that break mid-name":    `innerWidth < 1400 ? 0 : [...document.querySelectorAll(".id")].filter(e => e.getClientRects().length != 1 || e.getBoundingClientRect().height > 40).length`,
	"words that break inside":    `innerWidth != 800 ? 0 : [...document.querySelectorAll(".id, .badge, .short, .when, td[data-label=Version], td[data-label=Token]")].flatMap(e => [...e.childNodes].filter(n => n.nodeType == 3)).flatMap(n => [...n.data.matchAll(/[^\s-]+-?/g)].filter(m => m[0].length <= 30).map(m => { const r = document.createRange(); r.setStart(n, m.index); r.setEnd(n, m.index + m[0].length); return new Set([...r.getClientRects()].map(b => b.top)).size })).filter(lines => lines > 1).length`,
	"tables of unaligned scores": `innerWidth < 720 ? 0 : [...document.querySelectorAll("table")].filter(t => new Set([...t.querySelectorAll("meter")].map(e => Math.round(e.getBoundingClientRect().left))).size > 1).length`,
	"badges wider than a column": `[...document.querySelectorAll("td .badge")].filter(e => e.getBoundingClientRect().right > e.closest("td").getBoundingClientRect().right + 0.5).length`,
}

func fit(t *testing.T, tab context.Context, s sight) {
	t.Helper()
	for what, script := range fits {
		if n := evaluate[float64](t, tab, script); n != 0 {
			t.Errorf("%v: %v %s", s, n, what)
		}
	}
}

func TestInABrowserTroubleComesFirstAndNothingIsGreenThatIsNotKnownToBeWell(t *testing.T) {
	s := newStaging(t)
	s.troubles()
	address, gone := s.show(dashboard.WithRefresh(time.Second))
	tab := open(t)
	states := `[...document.querySelectorAll(".overview tbody tr")].map(e => e.querySelector("th").innerText.trim() + ": " + e.querySelector("td[data-label=State]").innerText.replace(/(\d+ min )?\d+ s\b/, "N s"))`
	hung := "c-leader-frozen: nobody leads: the lease of " + web2 + " ran out N s ago, and its session has not ended"
	eventually(t, "the frozen leader's session is silent for long", func() bool {
		check(t, chromedp.Do(tab, chromedp.Navigate(address+"?refresh=off")))
		return slices.Contains(evaluate[[]string](t, tab, states), hung)
	})
	want := []string{hung, "e-nobody-healthy: nobody leads: no candidate is healthy (0.1, 0.3)", "f-nobody-there: nobody leads: no candidate was seen for N s",
		"d-follower-ill: a candidate is unhealthy (0.42)", "b-follower-gone: led without a deputy: " + web2 + " was not seen for N s", "a-well: led"}
	see(t, tab, address+"?refresh=off", "troubles", func(s sight) {
		fit(t, tab, s)
		if got := evaluate[[]string](t, tab, states); !slices.Equal(got, want) {
			t.Errorf("%v: the rows are %q\nwant %q", s, got, want)
		}
		if got := evaluate[[]string](t, tab, greens); !slices.Equal(got, []string{"led", "led by " + web1, "leads", "led by " + web1, "leads", "led by " + web1, "leads"}) {
			t.Errorf("%v: green are %q", s, got)
		}
		if title := evaluate[string](t, tab, `document.title`); title != "5 problems – Elections" {
			t.Errorf("the title is %q", title)
		}
	})
	s.detail(tab)
	keeps(t, tab, address)
	eventually(t, "the server is away", func() bool {
		gone()
		check(t, chromedp.Do(tab, chromedp.Navigate(address+"?refresh=off")))
		return evaluate[string](t, tab, `document.title`) == "No current data – Elections"
	})
	see(t, tab, address+"?refresh=off", "away", func(s sight) {
		fit(t, tab, s)
		if n := evaluate[int](t, tab, colourful); n != 0 {
			t.Errorf("%v, away: %d things have a colour", s, n)
		}
		alert := evaluate[string](t, tab, `document.querySelector(".alert").innerText`)
		if !regexp.MustCompile(`No current data: .*\n+Below is what was true at the last look, .* ago, at \d+-\d\d-\d\d \d\d:\d\d:\d\d UTC\.`).MatchString(alert) {
			t.Errorf("the alert says %q", alert)
		}
	})
}

// keeps checks that three refreshes keep an opened reason, what is typed, and where one has scrolled.
func keeps(t *testing.T, tab context.Context, address string) {
	t.Helper()
	for _, width := range []int64{390, 800, 1400} {
		check(t, chromedp.Do(tab, chromedp.EmulateViewport(width, 300), chromedp.Navigate(address)))
		evaluate[*string](t, tab, `(document.querySelector("summary").click(), document.querySelector("#q").value = "half a na", scrollTo(0, 200), document.querySelector("main").dataset.first = "yes", undefined)`)
		const state = `[document.querySelectorAll("details[open]").length, document.querySelector("#q").value, scrollY].join(" ")`
		before := evaluate[string](t, tab, state)
		if before != "1 half a na 200" {
			t.Errorf("%d pixels wide: before a refresh: %q", width, before)
		}
		for range 3 {
			eventually(t, "a refresh", func() bool { return evaluate[bool](t, tab, `document.querySelector("main").dataset.first != "yes"`) })
			if after := evaluate[string](t, tab, state); after != before {
				t.Errorf("%d pixels wide: %q, and after a refresh %q", width, before, after)
			}
			evaluate[*string](t, tab, `(document.querySelector("main").dataset.first = "yes", undefined)`)
		}
	}
}

// detail checks the sections of the troubles, at the last sight.
func (s *staging) detail(tab context.Context) {
	t := s.t
	t.Helper()
	roles := evaluate[[]string](t, tab, `[...document.querySelectorAll("td[data-label=Role]")].map(e => e.innerText.replace(/(\d+ min )?\d+ s/, "N s").replace(/\s+/g, " "))`)
	want := []string{"leads not seen for N s", "follows", "follows unhealthy", "follows unhealthy", "not seen for N s", "leads", "follows unhealthy", "follows",
		"leads", "not seen for N s", "leads", "deputy"}
	if !slices.Equal(roles, want) {
		t.Errorf("the roles are %q\nwant %q", roles, want)
	}
	old := evaluate[[]string](t, tab, `[...document.querySelectorAll("section .old")].map(e => e.innerText.trim() + " " + getComputedStyle(e.querySelector("meter")).filter)`)
	if want := []string{"0.9 grayscale(1)", "0.9 grayscale(1)", "0.91 grayscale(1)"}; !slices.Equal(old, want) {
		t.Errorf("grey are the scores %q, want %q", old, want)
	}
	if strips := evaluate[int](t, tab, `document.querySelectorAll(".overview .strip svg").length`); strips != 5 {
		t.Errorf("the overview has %d timelines", strips)
	}
	since := evaluate[[]string](t, tab, `(e => [e.innerText, e.title])(document.querySelector("a[href='#e`+fmt.Sprint(int64(elector.KeyFromName("d-follower-ill")))+`']").closest("tr").querySelector("time"))`)
	if !regexp.MustCompile(`^11 h \d+ min$`).MatchString(since[0]) || !regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$`).MatchString(since[1]) {
		t.Errorf("since is %q", since)
	}
	const cause = `document.querySelector("details div").checkVisibility()`
	if word := evaluate[string](t, tab, `document.querySelector("summary").innerText`); word != "unhealthy" || evaluate[bool](t, tab, cause) {
		t.Errorf("the end of a term says %q, and its error is not behind it", word)
	}
	evaluate[*string](t, tab, `document.querySelector("summary").focus()`)
	check(t, chromedp.Do(tab, chromedp.KeyEvent(kb.Enter)))
	if !evaluate[bool](t, tab, cause) {
		t.Error("the Enter key does not show the error")
	}
}
