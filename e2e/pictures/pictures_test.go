//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"html"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/chromedp/chromedp"
	"github.com/pgelector/pgelector/e2e/browser"
)

func TestTheCommittedPicturesAreUpToDate(t *testing.T) {
	for name, want := range pictures("../../docs/pictures") {
		if got, err := os.ReadFile("../../docs/pictures/" + name); err != nil || string(got) != want {
			t.Errorf("%s is not up to date (%v): run 'make docs'", name, err)
		}
	}
}

func TestTheArithmeticMatchesTheElector(t *testing.T) {
	for file, constants := range map[string][]string{
		"elector/options.go":      {`defaultLease\s*= 10 \* time.Second`, `drainShare\s*= 5 `, `heartbeatShare\s*= 5 `},
		"internal/lease/lease.go": {`marginShare\s*= 10 `},
	} {
		source, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range constants {
			if !regexp.MustCompile(want).Match(source) {
				t.Errorf("%s no longer has %q, which the picture of the lease uses", file, want)
			}
		}
	}
}

// The others, of metrics, of the roster and of failovers on a page, are wide.
var onPhones = []string{"failover-phone.svg", "handover.svg", "lease.svg", "shards.svg", "states.svg"}

func TestThePicturesCanBeReadOnAPhone(t *testing.T) {
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
	all := pictures("../../docs/pictures")
	for _, name := range onPhones {
		picture := strings.Replace(all[name], "<svg ", `<svg style="width: 100%; height: auto" `, 1)
		file := filepath.Join(t.TempDir(), "phone.html")
		if err := os.WriteFile(file, []byte(`<!doctype html><meta charset="utf-8"><body style="margin: 0">`+picture), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := chromedp.Do(tab, chromedp.EmulateViewport(360, 640), chromedp.Navigate("file://"+file)); err != nil {
			t.Fatal(err)
		}
		for what, script := range map[string]string{
			"texts smaller than 11 pixels": `texts.filter(e => e.getAttribute("font-size") * svg.width / whole.viewBox.baseVal.width < 11)`,
			"texts that are cut off":       `texts.filter(e => box(e).left < 0 || box(e).right > 360 || box(e).bottom > svg.bottom)`,
			"texts that touch another":     `texts.filter(e => texts.some(f => e != f && touch(box(e), box(f))))`,
			"texts under a mark":           `texts.filter(e => marks.some(m => touch(box(e), box(m))))`,
			"marks that hide another":      `marks.filter(m => marks.some(n => m != n && over(box(m), box(n))))`,
		} {
			found, err := chromedp.Run(tab, chromedp.Evaluate[[]string](`(() => {
				const box = e => e.getBoundingClientRect(), whole = document.querySelector("svg"), svg = box(whole);
				const texts = [...document.querySelectorAll("text")], marks = [...document.querySelectorAll("g > *")];
				const touch = (a, b) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom; // a box has room above its letters
				const over = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
				return `+script+`.map(e => e.textContent || e.outerHTML);
			})()`))
			if err != nil || len(found) != 0 {
				t.Errorf("%s: %s: %q, %v", name, what, found, err)
			}
		}
	}
}

var (
	rectangle = regexp.MustCompile(`<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"`)
	words     = regexp.MustCompile(`<text x="([\d.]+)" y="([\d.]+)" font-size="(\d+)"[^>]*text-anchor="(\w+)">([^<]*)</text>`)
)

// perLetter is the width of a letter, on average, as a share of the size of the font.
const perLetter = 0.5

// tooWide returns the texts of a picture that begin in a box and may leave it.
func tooWide(picture string) (all []string) {
	number := func(text string) float64 { n, _ := strconv.ParseFloat(text, 64); return n }
	for _, text := range words.FindAllStringSubmatch(picture, -1) {
		x, y, content := number(text[1]), number(text[2]), html.UnescapeString(text[5])
		width := perLetter * number(text[3]) * float64(utf8.RuneCountInString(content))
		from := x - width*map[string]float64{"start": 0, "middle": 0.5, "end": 1}[text[4]]
		for _, box := range rectangle.FindAllStringSubmatch(picture, -1) {
			left, top := number(box[1]), number(box[2])
			right, bottom := left+number(box[3]), top+number(box[4])
			if left < x && x < right && top < y && y < bottom && (from < left || from+width > right) {
				all = append(all, content)
			}
		}
	}
	return all
}

func TestNoTextLeavesItsBox(t *testing.T) {
	for name, picture := range pictures("../../docs/pictures") {
		if found := tooWide(picture); len(found) > 0 {
			t.Errorf("%s: too wide for their boxes: %q", name, found)
		}
	}
	c := &canvas{palette: light}
	c.bar(128, 230, 200, 38, c.quiet, c.on, "follows: polls, or waits in the queue")
	if len(tooWide(c.svg())) != 1 {
		t.Error("a text that is too wide is not found")
	}
}

func TestShrinkKeepsThePicture(t *testing.T) {
	full := image.NewRGBA(image.Rect(0, 0, 40, 40))
	for x := range 40 {
		for y := range 40 {
			full.Set(x, y, color.RGBA{uint8(x / 20 * 200), uint8(y), 0, 255})
		}
	}
	var text bytes.Buffer
	if err := png.Encode(&text, full); err != nil {
		t.Fatal(err)
	}
	shrunk, err := shrink(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	small, err := png.Decode(bytes.NewReader(shrunk))
	if err != nil || small.Bounds() != full.Bounds() {
		t.Fatalf("got %v, %v", small.Bounds(), err)
	}
	for x := range 40 {
		for y := range 40 {
			if r, g, b, _ := small.At(x, y).RGBA(); color.RGBAModel.Convert(full.At(x, y)) != (color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}) {
				t.Fatalf("the pixel at %d, %d differs", x, y)
			}
		}
	}
}

func TestTheCommittedPicturesHaveTheRightSize(t *testing.T) {
	for name, width := range sights {
		file := filepath.Join("..", "..", "docs", "pictures", name+".png")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		config, err := png.DecodeConfig(bytes.NewReader(text))
		if err != nil || config.Width != int(float64(width)*scale) {
			t.Errorf("%s is %d pixels wide (%v): make screenshots", file, config.Width, err)
		}
	}
}
