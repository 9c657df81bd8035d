package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed reasons.txt
var reasonsText string

// A reason is why it is no bug that the tests do not notice some mutants.
type reason struct {
	text string
	of   []string // their keys
}

// parseReasons reads them: a line that begins with # is one, of the mutants whose keys
// follow.
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

// needless are the keys that are given a reason, of no mutant that wants one.
func needless(reasons []reason, mutants []mutant, known *verdicts) (keys []string) {
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
