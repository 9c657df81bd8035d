package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed mutations.txt
var text string

// A mutation is one way to break the library.
type mutation struct {
	what, file string
	out, in    string // lines
}

// parse reads the list.
func parse(text string) (all []mutation, err error) {
	for _, block := range strings.Split(text, "\n\n") {
		var m mutation
		for line := range strings.Lines(block) {
			body := strings.TrimPrefix(strings.TrimPrefix(line, "-"), "+")
			switch {
			case strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "-"):
				m.out += body
			case strings.HasPrefix(line, "+"):
				m.in += body
			case m.what == "":
				m.what = strings.TrimSpace(line)
			default:
				m.file = strings.TrimSpace(line)
			}
		}
		m.out, m.in = strings.TrimSuffix(m.out, "\n"), strings.TrimSuffix(m.in, "\n")
		switch {
		case m.what == "":
			continue // a comment
		case m.file == "" || m.out == "" || m.out == m.in:
			return nil, fmt.Errorf("mutation %q: want a file, and lines that are taken out and put in", m.what)
		}
		all = append(all, m)
	}
	return all, nil
}

// apply makes the change in a file's text.
func (m mutation) apply(source string) (string, error) {
	if n := strings.Count(source, m.out); n != 1 {
		return "", fmt.Errorf("mutation %q: its lines stand %d times in %s, want once: change mutations.txt with the code\n%s", m.what, n, m.file, m.out)
	}
	return strings.Replace(source, m.out, m.in, 1), nil
}
