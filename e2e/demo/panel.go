//go:build unix

package main

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/pgelector/pgelector/e2e/history"
)

const (
	panelWidth = 24 // inside the border: three fit into 80 columns
	barWidth   = 9
)

// panels draws the candidates side by side.
func (m model) panels(now history.Time) string {
	var all []string
	for _, s := range m.board.seats {
		all = append(all, m.panel(s, now))
	}
	return lipgloss.JoinHorizontal(lipgloss.Top, all...)
}

func (m model) panel(s *seat, now history.Time) string {
	colour := colourOf(s.name)
	border, edge := lipgloss.RoundedBorder(), faint
	switch {
	case s.left:
	case s.dead:
		edge = bad
	case s.frozen:
		edge = cold
	case s.leading:
		border, edge = lipgloss.ThickBorder(), colour
	}
	lines := []string{
		spread(colour.Render(s.name)+" "+s.driver, faint.Render(fmt.Sprintf("pid %d", s.pid))),
		s.state(),
		s.tokenLine(),
		m.leaseLine(s, now),
	}
	return lipgloss.NewStyle().Border(border).BorderForeground(edge.GetForeground()).Padding(0, 1).Width(panelWidth + 2).
		Render(strings.Join(lines, "\n"))
}

// spread puts one text at the left of a panel and one at the right.
func spread(left, right string) string {
	gap := panelWidth - 2 - lipgloss.Width(left) - lipgloss.Width(right)
	return left + strings.Repeat(" ", max(gap, 1)) + right
}

func (s *seat) state() string {
	switch {
	case s.left:
		return faint.Render("· has left")
	case s.dead:
		return bad.Render("✗ killed")
	case s.frozen:
		return cold.Render("■ frozen")
	case s.leading:
		return good.Render("★ leads")
	case s.follows != 0:
		return "· waits"
	}
	return faint.Render("· starts")
}

// tokenLine shows a frozen process's token, too: it cannot know better.
func (s *seat) tokenLine() string {
	if s.leading {
		return spread(faint.Render("token"), fmt.Sprint(s.token))
	}
	return faint.Render("token –")
}

// leaseLine is a bar of how long the leader may believe without a heartbeat.
func (m model) leaseLine(s *seat, now history.Time) string {
	if !s.leading {
		return faint.Render("lease –")
	}
	left := max(s.deadline.Sub(now), 0)
	full := min(int(float64(barWidth)*left.Seconds()/validity(m.lease).Seconds()+0.5), barWidth)
	style := good
	if full <= barWidth/2 {
		style = bad
	}
	return spread(faint.Render("lease"), style.Render(strings.Repeat("▰", full))+faint.Render(strings.Repeat("▱", barWidth-full))+
		fmt.Sprintf(" %4.1f s", left.Seconds()))
}
