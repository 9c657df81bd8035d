package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A suite is the tests of one package, built in the copy.
type suite struct {
	name    string // its folder
	binary  string
	dir     string
	args    []string
	reached map[int]bool // the planted mutants that make a difference to what it runs
	limit   time.Duration
}

// suites are those of a copy, in the order in which they run: what notices most in the
// least time comes first.
func suites(dir string) (all []*suite) {
	for _, s := range []suite{
		{name: "internal/backoff"},
		{name: "internal/pgerr"},
		{name: "internal/session"},
		{name: "internal/lock"},
		{name: "elector"},
		{name: "sqlmock_test"},
		{name: "e2e/simulation", args: []string{"-test.run=^TestSimulation$", "-seeds=300", "-simplify=false"}},
		{name: "electortest"},
	} {
		s.dir = filepath.Join(dir, s.name)
		s.binary = filepath.Join(dir, ".bin", filepath.Base(s.name))
		s.args = append([]string{"-test.failfast"}, s.args...)
		s.limit = time.Minute
		all = append(all, &s)
	}
	return all
}

func (s *suite) compile(ctx context.Context) error {
	command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", s.binary, ".")
	command.Dir = s.dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", s.name, err, out)
	}
	return nil
}

// build builds the suites and runs each once with no mutant alive.
func build(ctx context.Context, dir string) ([]*suite, error) {
	all := suites(dir)
	for _, s := range all {
		if err := s.compile(ctx); err != nil {
			return nil, err
		}
		if err := s.measure(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// measure checks that the suite passes, how long that takes, and which mutants it reaches.
func (s *suite) measure(ctx context.Context) error {
	reached := s.binary + ".reached"
	s.limit = 10 * time.Minute
	began := time.Now()
	if out, err := s.run(ctx, "MUTANTS_REACHED="+reached); err != nil {
		return fmt.Errorf("the tests of %s with no mutant alive: %w\n%s", s.name, err, out)
	}
	took := time.Since(began)
	s.limit = 10*time.Second + 8*took
	s.reached = map[int]bool{}
	numbers, err := os.ReadFile(reached)
	if err != nil {
		return err
	}
	for line := range strings.FieldsSeq(string(numbers)) {
		n, err := strconv.Atoi(line)
		if err != nil {
			return err
		}
		s.reached[n] = true
	}
	fmt.Printf("%-20s reaches %4d mutants in %v\n", s.name, len(s.reached), took.Round(time.Millisecond))
	return nil
}

var errHangs = errors.New("hangs")

// run runs the suite until its first failure. It fails with errHangs if that takes much
// longer than usual.
func (s *suite) run(ctx context.Context, variable string) (out string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, errHangs)
	defer cancel()
	command := exec.CommandContext(ctx, s.binary, s.args...)
	command.Dir = s.dir
	command.Env = append(os.Environ(), variable)
	command.WaitDelay = time.Second
	var text bytes.Buffer
	command.Stdout, command.Stderr = &text, &text
	err = command.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return text.String(), err
}

// try runs the suites that matter until one fails. Once the context has ended the
// verdict is worth nothing.
func try(ctx context.Context, variable string, all []*suite, matters func(*suite) bool) verdict {
	v := unreached
	for _, s := range all {
		if !matters(s) {
			continue
		}
		v = missed
		if out, err := s.run(ctx, variable); err != nil {
			return noticedBy(s.name, out, err)
		}
	}
	return v
}

// A verdict is what became of a mutant.
type verdict string

const (
	missed    verdict = "not noticed"
	unreached verdict = "not reached" // or it made no difference to what reached it
	noticed           = "noticed by "
)

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// noticedBy is the verdict of a suite that failed with that output.
func noticedBy(suite, out string, err error) verdict {
	v := verdict(noticed + suite)
	switch found := failedTest.FindStringSubmatch(out); {
	case errors.Is(err, errHangs):
		return v + ", which hangs"
	case found != nil:
		return v + ": " + verdict(found[1])
	}
	return v
}

func (v verdict) noticed() bool { return strings.HasPrefix(string(v), noticed) }

// verdicts are kept in a file, a line for each.
type verdicts struct {
	mu   sync.Mutex
	file *os.File
	all  map[string]verdict
}

// openVerdicts opens the file for more. It starts afresh unless again is set.
func openVerdicts(name string, again bool) (*verdicts, error) {
	v := &verdicts{all: map[string]verdict{}}
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if again {
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
		kept, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for line := range strings.Lines(string(kept)) {
			if value, key, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
				v.all[key] = verdict(value)
			}
		}
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	var err error
	v.file, err = os.OpenFile(name, flags, 0o644)
	return v, err
}

func (v *verdicts) set(m mutant, to verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all[m.key()] = to
	fmt.Fprintf(v.file, "%s\t%s\n", to, m.key())
}

func (v *verdicts) get(m mutant) verdict {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all[m.key()]
}

func (v *verdicts) close() { v.file.Close() }
