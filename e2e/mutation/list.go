package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed list.txt
var listText string

// A listed mutant is one of list.txt, and the result of trying it.
type listed struct {
	what, file string
	out, in    string // lines
	result     result
}

// parseList parses the list.
func parseList(text string) (all []listed, err error) {
	for _, block := range strings.Split(text, "\n\n") {
		var m listed
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
			return nil, fmt.Errorf("mutant %q: want a file, and lines to remove and to insert", m.what)
		}
		all = append(all, m)
	}
	return all, nil
}

// apply makes the change in the text of a file.
func (m listed) apply(source string) (string, error) {
	if n := strings.Count(source, m.out); n != 1 {
		return "", fmt.Errorf("mutant %q: its lines occur %d times in %s, want once: change list.txt together with the code\n%s", m.what, n, m.file, m.out)
	}
	return strings.Replace(source, m.out, m.in, 1), nil
}

// tryList tries the mutants of the list, in as many copies as there are processors.
func tryList(ctx context.Context, dir string, list []listed) (tried []listed, err error) {
	list = slices.DeleteFunc(list, func(m listed) bool { return !strings.Contains(m.what+m.file, *only) })
	next := make(chan listed)
	var mu sync.Mutex
	var working sync.WaitGroup
	for i := range runtime.NumCPU() {
		copied := filepath.Join(dir, fmt.Sprint("copy", i))
		if err := copyRepository(copied); err != nil {
			return nil, err
		}
		working.Go(func() {
			for m := range next {
				result, failed := m.try(ctx, copied)
				m.result = result
				mu.Lock()
				if failed != nil {
					err = cmp.Or(err, fmt.Errorf("mutant %q: %w", m.what, failed))
				}
				tried = append(tried, m)
				fmt.Printf("%2d of %d: %s: %s\n", len(tried), len(list), m.what, m.result)
				mu.Unlock()
			}
		})
	}
	for _, m := range list {
		select {
		case next <- m:
		case <-ctx.Done():
		}
	}
	close(next)
	working.Wait()
	return tried, cmp.Or(err, ctx.Err())
}

// try makes the change in the copy, runs the tests, and undoes the change.
func (m listed) try(ctx context.Context, dir string) (result, error) {
	undo, err := m.plant(dir)
	if err != nil {
		return "", err
	}
	defer undo()
	all, err := suites(dir)
	if err != nil {
		return "", err
	}
	for _, s := range all {
		if err := s.compile(ctx); err != nil {
			return result(fmt.Sprintf("not tried: %v", err)), nil
		}
		if out, err := s.run(ctx, s.tests, time.Minute, "MUTANT="); err != nil {
			return noticedBy(s.name, out), nil
		}
	}
	return missed, nil
}

// plant makes the change in the copy.
func (m listed) plant(dir string) (undo func(), err error) {
	path := filepath.Join(dir, m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	changed, err := m.apply(string(source))
	if err != nil {
		return nil, err
	}
	return func() { _ = os.WriteFile(path, source, 0o644) }, os.WriteFile(path, []byte(changed), 0o644)
}

func missedOf(all []listed) (n int) {
	for _, m := range all {
		if !m.result.noticed() {
			n++
		}
	}
	return n
}
