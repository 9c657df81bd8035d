//go:build linux

package main

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"time"
)

// line is one line of a pane and the time of its last character.
type line struct {
	at   time.Duration
	text string
}

var escape = regexp.MustCompile("\x1b(\\[[0-9;?]*[a-zA-Z]|\\][^\x07]*\x07)")

// lines returns the lines as a terminal of that width shows them. It does not support moving
// the cursor up.
func (p *pane) lines() []line {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []line
	var current line
	end := func() {
		all = append(all, current)
		current = line{}
	}
	for _, c := range p.chunks {
		for _, r := range escape.ReplaceAllString(c.text, "") {
			switch {
			case r == '\n':
				end()
				continue
			case r < ' ':
				continue
			case len([]rune(current.text)) == columns:
				end()
			}
			current.at = c.at
			current.text += string(r)
		}
	}
	if strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(current.text), "$")) != p.host {
		end() // the last prompt is left out
	}
	for len(all) > 0 && all[len(all)-1].text == "" {
		all = all[:len(all)-1]
	}
	return all
}

// The layout of the picture, in pixels.
const (
	charWidth  = 7.25
	lineHeight = 17
	margin     = 14
	titleBar   = 26
	gap        = 12
	fontSize   = 12
)

const style = `<style>
text { font: %dpx ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d6dbe3; white-space: pre }
.title { fill: #8b95a5 } .prompt { fill: #7ee0a3 } .typed { fill: #fff; font-weight: bold }
.l { animation: appear 1ms both } @keyframes appear { from { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { .l { animation: none } }
</style>
`

// svg draws the panes one below the other. Lines appear at the recorded times; without
// animation all lines are visible.
func (s *studio) svg() string {
	const width = int(columns*charWidth) + 2*margin
	var b strings.Builder
	y := 0
	for i, p := range s.panes {
		lines := p.lines()
		height := titleBar + len(lines)*lineHeight + margin
		fmt.Fprintf(&b, `<rect y="%d" width="%d" height="%d" rx="8" fill="#1b2028" stroke="#3a4250"/>`+"\n", y, width, height)
		fmt.Fprintf(&b, `<text class="title" x="%d" y="%d">%d  %s</text>`+"\n", margin, y+18, i+1, html.EscapeString(p.host))
		for n, l := range lines {
			fmt.Fprintf(&b, `<text class="l" style="animation-delay:%.2fs" x="%d" y="%d" xml:space="preserve">%s</text>`+"\n",
				l.at.Seconds(), margin, y+titleBar+(n+1)*lineHeight-4, p.markup(l.text))
		}
		y += height + gap
	}
	height := y - gap
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img">`+"\n"+
		"<title>A recorded session: two hosts run a worker under one election; the leader's supervisor is killed, and the other host takes over</title>\n",
		width, height) + fmt.Sprintf(style, fontSize) + b.String() + "</svg>\n"
}

// markup styles the prompt and the typed text.
func (p *pane) markup(text string) string {
	prompt := p.host + " $ "
	if typed, found := strings.CutPrefix(text, prompt); found {
		return fmt.Sprintf(`<tspan class="prompt">%s</tspan><tspan class="typed">%s</tspan>`, html.EscapeString(prompt), html.EscapeString(typed))
	}
	return html.EscapeString(text)
}
