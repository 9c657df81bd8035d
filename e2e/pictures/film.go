//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A shot is a line of output, and when it came.
type shot struct {
	at   time.Duration
	line string
}

// Of a film: so many lines are seen at once, of this height and, in characters, width.
const (
	filmLines  = 22
	filmHeight = 18
	filmWidth  = 88
	filmEnd    = 6 * time.Second // for which its last lines stand
)

// film runs the demo and writes what it prints as an SVG that plays it, as fast as it was.
func film(ctx context.Context, file string) error {
	demo := exec.CommandContext(ctx, "go", "run", "./demo", "-plain")
	demo.Stderr = os.Stderr
	out, err := demo.StdoutPipe()
	if err != nil {
		return err
	}
	if err := demo.Start(); err != nil {
		return err
	}
	var shots []shot
	var began time.Time
	for in := bufio.NewScanner(out); in.Scan(); {
		if began.IsZero() { // compiled by now
			began = time.Now()
		}
		shots = append(shots, shot{time.Since(began), in.Text()})
	}
	if err := demo.Wait(); err != nil {
		return fmt.Errorf("the demo failed: %w", err)
	}
	return os.WriteFile(file, []byte(play(shots)), 0o644)
}

// play draws lines that scroll by as they came, again and again. Who wants no motion sees the last ones.
func play(shots []shot) string {
	length := filmEnd
	if len(shots) > 0 {
		length += shots[len(shots)-1].at
	}
	var frames, lines strings.Builder
	up := func(n int) int { return (filmLines - n) * filmHeight } // so that n lines are above the lower edge
	for i, s := range shots {
		fmt.Fprintf(&frames, "%.3f%%{transform:translateY(%dpx)}", 100*s.at.Seconds()/length.Seconds(), up(i+1))
		text, class := s.line, ""
		switch trimmed := strings.TrimSpace(text); {
		case strings.HasPrefix(text, "Scene "), strings.HasSuffix(text, ":") && text == trimmed:
			class = ` class="h"`
		case strings.HasPrefix(trimmed, "=>"), strings.HasPrefix(trimmed, "ok "):
			class = ` class="g"`
		}
		if text != "" {
			fmt.Fprintf(&lines, "<text x=\"12\" y=\"%d\"%s>%s</text>\n", i*filmHeight+14, class, html.EscapeString(text))
		}
	}
	width, high := filmWidth*8+24, filmLines*filmHeight+16
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="The demo: eight faults of a leader, and who leads after each">
<style>
rect{fill:#f6f8fa}text{fill:#1f2328;font:13px ui-monospace,SFMono-Regular,Menlo,monospace;white-space:pre}.h{font-weight:bold}.g{fill:#044f1e}
g{transform:translateY(%dpx);animation:film %.1fs step-end infinite}
@keyframes film{%s100%%{transform:translateY(%[3]dpx)}}
@media (prefers-reduced-motion: reduce){g{animation:none}}
@media (prefers-color-scheme: dark){rect{fill:#0d1117}text{fill:#f0f6fc}.g{fill:#aff5b4}}
</style>
<rect width="%[1]d" height="%[2]d" rx="8"/>
<svg y="8" width="%[1]d" height="%[6]d">
<g>
%[7]s</g>
</svg>
</svg>
`, width, high, up(len(shots)), length.Seconds(), frames.String(), filmLines*filmHeight, lines.String())
}
