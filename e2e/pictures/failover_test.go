//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pgelector/pgelector/e2e/browser"
)

func TestTheChartOfFailoversCanBeReadOnAPhone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tab, stop, err := browser.Open(ctx)
	if errors.Is(err, browser.ErrNone) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if len(compared) != 6 {
		t.Errorf("the chart has %d rows", len(compared))
	}
	picture := strings.Replace(pictures("../../docs/pictures")["failover.svg"], "<svg ", `<svg style="width: 100%; height: auto" `, 1)
	file := filepath.Join(t.TempDir(), "phone.html")
	if err := os.WriteFile(file, []byte(`<!doctype html><meta charset="utf-8"><body style="margin: 0">`+picture), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(tab, chromedp.EmulateViewport(360, 640), chromedp.Navigate("file://"+file)); err != nil {
		t.Fatal(err)
	}
	for what, script := range map[string]string{
		"texts smaller than 11 pixels": `texts.filter(e => e.getAttribute("font-size") * svg.width / 400 < 11)`,
		"texts that are cut off":       `texts.filter(e => box(e).left < 0 || box(e).right > 360 || box(e).bottom > svg.bottom)`,
		"texts that touch another":     `texts.filter(e => texts.some(f => e != f && touch(box(e), box(f))))`,
		"texts under a mark":           `texts.filter(e => [...document.querySelectorAll("g > *")].some(m => touch(box(e), box(m))))`,
	} {
		found, err := chromedp.Run(tab, chromedp.Evaluate[[]string](`(() => {
			const box = e => e.getBoundingClientRect(), svg = box(document.querySelector("svg")), texts = [...document.querySelectorAll("text")];
			const touch = (a, b) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom; // a box has room above its letters
			return `+script+`.map(e => e.textContent);
		})()`))
		if err != nil || len(found) != 0 {
			t.Errorf("%s: %q, %v", what, found, err)
		}
	}
}
