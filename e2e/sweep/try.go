package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A suite is the tests of a package, built with all mutants in them.
type suite struct {
	name    string
	binary  string
	dir     string
	args    []string
	reached map[int]bool // the mutants that make a difference to what it runs
	limit   time.Duration
}

// suites are in the order in which they are run: what finds most in the least time first.
var suites = []struct {
	name string
	args []string
}{
	{"internal/pace", nil},
	{"internal/fault", nil},
	{"internal/vitals", nil},
	{"internal/session", nil},
	{"elector", nil},
	{"sqlmock_test", nil},
	{"e2e/simulation", []string{"-test.run=^TestSimulation$", "-seeds=300", "-simplify=false"}},
	{"electortest", []string{"-test.skip=^TestTheStandIn"}}, // which ask a real server
}

// build builds the suites, and runs each once with no mutant alive.
func build(ctx context.Context, dir string) (all []*suite, err error) {
	bin := filepath.Join(dir, ".bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return nil, err
	}
	for _, c := range suites {
		s := &suite{name: c.name, binary: filepath.Join(bin, filepath.Base(c.name)), dir: filepath.Join(dir, c.name), args: append([]string{"-test.failfast"}, c.args...)}
		command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", s.binary, ".")
		command.Dir = s.dir
		if out, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w\n%s", c.name, err, out)
		}
		if err := s.rehearse(ctx); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// rehearse sees the suite pass, how long that takes, and what it reaches.
func (s *suite) rehearse(ctx context.Context) error {
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

// run runs the suite up to its first failure. It fails with errHangs if that takes much
// longer than it did in the rehearsal.
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

// try runs the suites that reach the mutant, until one notices it. When the context
// has ended the verdict is worth nothing.
func try(ctx context.Context, m mutant, all []*suite) verdict {
	v := unreached
	for _, s := range all {
		if !s.reached[m.number] {
			continue
		}
		v = missed
		if _, err := s.run(ctx, fmt.Sprint("MUTANT=", m.number)); err != nil {
			return noticedBy(s.name, err)
		}
	}
	return v
}
