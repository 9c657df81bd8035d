//go:build unix

package main

import (
	"image/color"

	"charm.land/lipgloss/v2"
)

// Colours of the terminal's own palette, so that they suit its background.
var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Foreground(lipgloss.Color("8"))
	good  = lipgloss.NewStyle().Foreground(lipgloss.Color("10")).Bold(true)
	bad   = lipgloss.NewStyle().Foreground(lipgloss.Color("9")).Bold(true)
	cold  = lipgloss.NewStyle().Foreground(lipgloss.Color("12")).Bold(true)
)

// colours of candidates, by name.
var colours = []color.Color{lipgloss.Color("14"), lipgloss.Color("13"), lipgloss.Color("11"), lipgloss.Color("10")}

func colourOf(name string) lipgloss.Style {
	if len(name) != 1 || name[0] < 'A' {
		return faint
	}
	return lipgloss.NewStyle().Foreground(colours[int(name[0]-'A')%len(colours)]).Bold(true)
}
