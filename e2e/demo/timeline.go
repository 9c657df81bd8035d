//go:build unix

package main

import (
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/pgelector/pgelector/e2e/history"
)

const timelineLabel = "who led  "

// timeline draws two lines: the numbers of the scenes above where they began,
// and who led when, with gaps where nobody did, and pale where a frozen leader
// did nothing.
func (m model) timeline(now history.Time) string {
	width := min(max(m.width, 40), 3*(panelWidth+2)) - len(timelineLabel)
	step := max(now.Sub(m.began)/time.Duration(width), 100*time.Millisecond)
	at := func(t history.Time) int { return min(int(t.Sub(m.began)/step), width-1) }

	numbers := []rune(strings.Repeat(" ", width))
	for i, t := range m.sceneBegan {
		numbers[at(t)] = rune('1' + i)
	}
	blocks := make([]string, at(now)+1)
	for _, r := range m.board.reign {
		end := r.ended
		if end == 0 {
			end = min(now, r.last)
		}
		for i := at(r.began); i <= at(end); i++ {
			block := "█"
			if r.frozen != 0 && i > at(r.frozen) {
				block = "░"
			}
			blocks[i] = colourOf(r.process).Render(block)
		}
	}
	for i, block := range blocks {
		if block == "" {
			blocks[i] = faint.Render("·")
		}
	}
	return lipgloss.JoinVertical(lipgloss.Left,
		faint.Render("scene    "+string(numbers)),
		faint.Render(timelineLabel)+strings.Join(blocks, ""))
}
