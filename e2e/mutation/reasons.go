package main

import (
	_ "embed"
	"fmt"
	"strings"
)

// A tally counts the mutants of the rules by result.
type tally struct {
	noticed, explained, untried int
	unexplained                 []mutant
}

func count(mutants []mutant, known *results, reasons []reason) (c tally) {
	because := map[string]bool{}
	for _, r := range reasons {
		for _, key := range r.of {
			because[key] = true
		}
	}
	for _, m := range mutants {
		if !strings.Contains(m.file, *only) {
			continue
		}
		switch v := known.get(m); {
		case v.noticed():
			c.noticed++
		case v == "":
			c.untried++
		case because[m.key()]:
			c.explained++
		default:
			c.unexplained = append(c.unexplained, m)
		}
	}
	return c
}

// report prints the result, and fails if mutants need a test or were not tried.
func (c tally) report() error {
	for _, m := range c.unexplained {
		fmt.Printf("needs a test, or a reason: %s:%d: %s: %s\n", m.file, m.line, m.change, m.code)
	}
	fmt.Printf("tests notice %d of %d mutants of rules; %d have a reason why not, %d need a test, %d were not tried\n",
		c.noticed, c.noticed+c.explained+c.untried+len(c.unexplained), c.explained, len(c.unexplained), c.untried)
	if len(c.unexplained)+c.untried > 0 {
		return fmt.Errorf("%d mutants need a test, and %d were not tried", len(c.unexplained), c.untried)
	}
	return nil
}

//go:embed reasons.txt
var reasonsText string

// A reason explains why some mutants that the tests do not notice are not bugs.
type reason struct {
	text string
	of   []string // the keys of the mutants
}

// parseReasons parses the reasons: a line that begins with # is a reason, and the lines after
// it are the keys of its mutants.
func parseReasons(text string) (all []reason, err error) {
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if reasonFor, ok := strings.CutPrefix(line, "# "); ok {
			all = append(all, reason{text: reasonFor})
			continue
		}
		if len(all) == 0 || seen[line] {
			return nil, fmt.Errorf("want one reason for %q", line)
		}
		seen[line] = true
		last := &all[len(all)-1]
		last.of = append(last.of, line)
	}
	return all, nil
}

// needless returns the keys that have a reason without need: their mutants are noticed or do
// not exist.
func needless(reasons []reason, mutants []mutant, known *results) (keys []string) {
	wants := map[string]bool{}
	for _, m := range mutants {
		wants[m.key()] = !known.get(m).noticed()
	}
	for _, r := range reasons {
		for _, key := range r.of {
			if !wants[key] {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
