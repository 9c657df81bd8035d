// Command pictures draws the pictures of the documents, each for light and for dark pages:
// `make docs`. It needs only Go. The optional second argument is the summary of a run of
// e2e/torture, to draw instead of the committed one.
package main

import (
	"fmt"
	"html"
	"log"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	dir := "../docs/pictures"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if len(os.Args) > 2 {
		var err error
		if tortureSummary, err = os.ReadFile(os.Args[2]); err != nil {
			log.Fatal(err)
		}
	}
	for name, picture := range pictures(dir) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(picture), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// pictures returns the pictures of docs/pictures, which is dir, by file name.
func pictures(dir string) map[string]string {
	all := map[string]string{}
	gaps := failover(filepath.Join(dir, "../../bench/results.json"))
	for theme, colours := range themes {
		for name, draw := range map[string]func(*canvas){"states": states, "lease": leaseArithmetic, "metrics": metrics, "roster": roster, "torture": torture, "handover": handOver, "shards": shards, "failover": gaps} {
			c := &canvas{palette: colours}
			draw(c)
			all[fmt.Sprintf("%s-%s.svg", name, theme)] = c.svg()
		}
	}
	return all
}

// palette is the colours of one theme, named by their meaning.
type palette struct {
	text, faint, line, box    string
	good, warn, bad, quiet    string // fills
	onGood, onWarn, onBad, on string // text upon them
}

var themes = map[string]palette{
	"light": {text: "#1f2328", faint: "#59636e", line: "#59636e", box: "#f6f8fa",
		good: "#aceebb", warn: "#fae17d", bad: "#ffcecb", quiet: "#d1d9e0",
		onGood: "#044f1e", onWarn: "#4d2d00", onBad: "#82061e", on: "#1f2328"},
	"dark": {text: "#f0f6fc", faint: "#9198a1", line: "#9198a1", box: "#151b23",
		good: "#0f5323", warn: "#5a3a00", bad: "#78191b", quiet: "#2f3742",
		onGood: "#aff5b4", onWarn: "#f2cc60", onBad: "#ffc1ba", on: "#f0f6fc"},
}

// canvas collects the elements of a picture.
type canvas struct {
	palette
	title         string
	width, height int
	parts         strings.Builder
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.parts, format+"\n", args...) }

// label writes lines of text, one below the other. anchor is start, middle or end.
func (c *canvas) label(x, y float64, size int, colour, anchor, weight string, lines ...string) {
	for i, line := range lines {
		c.add(`<text x="%.1f" y="%.1f" font-size="%d" font-weight="%s" fill="%s" text-anchor="%s">%s</text>`,
			x, y+float64(i*(size+4)), size, weight, colour, anchor, html.EscapeString(line))
	}
}

// note writes small explanatory text.
func (c *canvas) note(x, y float64, anchor string, lines ...string) {
	c.label(x, y, 13, c.faint, anchor, "400", lines...)
}

// state draws a rounded box with a name and lines below it.
func (c *canvas) state(x, y, w, h float64, name string, lines ...string) {
	c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="10" fill="%s" stroke="%s" stroke-width="1.5"/>`, x, y, w, h, c.box, c.line)
	c.label(x+w/2, y+28, 17, c.text, "middle", "600", name)
	c.note(x+w/2, y+50, "middle", lines...)
}

// bar draws a filled part of a time line.
func (c *canvas) bar(x, y, w, h float64, fill, ink string, lines ...string) {
	c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3" fill="%s"/>`, x, y, w, h, fill)
	top := y + h/2 + 5 - float64(len(lines)-1)*8.5
	c.label(x+w/2, top, 13, ink, "middle", "500", lines...)
}

// arrow draws a line along the points that ends with an arrowhead.
func (c *canvas) arrow(points ...float64) { c.path(` marker-end="url(#head)"`, points...) }

// stroke draws a dashed line along the points.
func (c *canvas) stroke(points ...float64) { c.path(` stroke-dasharray="3 4"`, points...) }

func (c *canvas) path(more string, points ...float64) {
	d := fmt.Sprintf("M%.1f %.1f", points[0], points[1])
	for i := 2; i < len(points); i += 2 {
		d += fmt.Sprintf(" L%.1f %.1f", points[i], points[i+1])
	}
	c.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5" stroke-linejoin="round"%s/>`, d, c.line, more)
}

// dot draws a start mark, or with a ring an end mark.
func (c *canvas) dot(x, y float64, ring bool) {
	if ring {
		c.add(`<circle cx="%.1f" cy="%.1f" r="9" fill="none" stroke="%s" stroke-width="1.5"/>`, x, y, c.line)
	}
	c.add(`<circle cx="%.1f" cy="%.1f" r="5" fill="%s"/>`, x, y, c.line)
}

func (c *canvas) svg() string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif">
<title>%s</title>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="%s"/></marker></defs>
%s</svg>
`, c.width, c.height, c.width, c.height, html.EscapeString(c.title), c.line, c.parts.String())
}
