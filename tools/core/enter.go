package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/pgelector/pgelector/"

// enter runs one default election, on the server in memory: a candidate is elected, leads, and resigns. It prints the files
// with code that the election runs, and checks that CONTRIBUTING says "always" of just those parts.
func enter(root string) error {
	dir, err := os.MkdirTemp("", "core")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	profile := filepath.Join(dir, "profile")
	test := exec.Command("go", "test", "-count=1", "-v", "-run=^TestFewFramesLieBetweenRunAndTheFirstStatement$", "-coverprofile="+profile,
		"-coverpkg=./elector,./internal/...", "./elector")
	test.Dir = root
	out, err := test.CombinedOutput()
	if err != nil {
		return fmt.Errorf("core: a default election: %w: %s", err, out)
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	table, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		return err
	}
	frames := regexp.MustCompile(`\d+ frames`).FindString(string(out))
	files := entered(string(text))
	fmt.Printf("\na default election: %s from Run to the first statement; it enters %d files:\n", frames, len(files))
	in := map[string][]string{}
	for _, f := range files {
		in[path.Dir(f)] = append(in[path.Dir(f)], path.Base(f))
	}
	for _, p := range slices.Sorted(maps.Keys(in)) {
		fmt.Printf("  %-22s %s\n", p, strings.Join(in[p], " "))
	}
	var found findings
	found.bound("files that a default election enters", len(files), mostEnterFiles)
	always := alwaysOn(string(table))
	for _, p := range parts {
		if says, runs := always[path.Base(p)], len(in[p]) > 0; says != runs {
			found.add("a default election runs %s: %t, but CONTRIBUTING's table of parts says always: %t", p, runs, says)
		}
	}
	return errors.Join(found...)
}

// entered are the files of the core of which a profile has code that was run.
func entered(profile string) []string {
	files := map[string]bool{}
	for line := range strings.Lines(profile) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, module), ":")
		if slices.Contains(all(), path.Dir(name)) && !strings.HasSuffix(strings.TrimSpace(rest), " 0") && rest != "" {
			files[name] = true
		}
	}
	delete(files, "mode")
	return slices.Sorted(maps.Keys(files))
}

// alwaysOn are the parts of which the table of parts says that they are always on.
func alwaysOn(table string) map[string]bool {
	on := map[string]bool{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 4 && strings.HasPrefix(strings.TrimSpace(cells[3]), "always") {
			for _, name := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(cells[1], -1) {
				on[name[1]] = true
			}
		}
	}
	return on
}
