package main

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// kernel are the packages that -path breaks: the kernel, and what it stands on.
var kernel = []string{"internal/election", "internal/idle", "internal/pin", "internal/lease", "internal/gate", "internal/lockkey", "internal/backoff", "internal/pgerr"}

// filesToBreak returns the patterns of the files that the rules change.
func filesToBreak() (patterns []string) {
	packages := broken
	if *onPath {
		packages = kernel
	}
	for _, p := range packages {
		patterns = append(patterns, p+"/*.go")
	}
	return patterns
}

// draw chooses n of the mutants by the seed, or all if n is 0. A mutant's rank depends on nothing
// but the seed and itself: after a change of the code most of those drawn before are drawn again.
func draw(all []mutant, n int, seed uint64) []mutant {
	if n <= 0 || n >= len(all) {
		return all
	}
	drawn := slices.SortedFunc(slices.Values(all), func(a, b mutant) int {
		return cmp.Or(cmp.Compare(rank(a, seed), rank(b, seed)), cmp.Compare(a.number, b.number))
	})[:n]
	slices.SortFunc(drawn, func(a, b mutant) int { return cmp.Compare(a.number, b.number) })
	return drawn
}

func rank(m mutant, seed uint64) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\t%d", m.key(), seed)
	x := h.Sum64() // whose upper bits differ little between similar keys
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// unitSuites returns the tests of elector and internal: the only ones that -path runs.
func unitSuites(ctx context.Context, dir string) (all []*suite, err error) {
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", "./internal/...", "./elector/...")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for folder := range strings.FieldsSeq(string(out)) {
		name, err := filepath.Rel(dir, folder)
		if err != nil {
			return nil, err
		}
		all = append(all, newSuite(dir, suite{name: name}))
	}
	return all, nil
}
