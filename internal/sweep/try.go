package main

import (
	"bytes"
	"context"
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
	{"internal/simulation", []string{"-test.run=^TestSimulation$", "-seeds=300", "-simplify=false"}},
	{"electortest", []string{"-test.skip=^TestTheStandIn"}}, // which ask a real server
}

// build builds the suites, and runs each once with no mutant alive.
func build(dir string) (all []*suite, err error) {
	bin := filepath.Join(dir, ".bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return nil, err
	}
	for _, c := range suites {
		s := &suite{name: c.name, binary: filepath.Join(bin, filepath.Base(c.name)), dir: filepath.Join(dir, c.name), args: append([]string{"-test.failfast"}, c.args...)}
		command := exec.Command("go", "test", "-c", "-vet=off", "-o", s.binary, "./"+c.name)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w\n%s", c.name, err, out)
		}
		if err := s.rehearse(); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// rehearse sees the suite pass, how long that takes, and what it reaches.
func (s *suite) rehearse() error {
	reached := s.binary + ".reached"
	s.limit = 10 * time.Minute
	began := time.Now()
	if passed, out := s.run("MUTANTS_REACHED=" + reached); !passed {
		return fmt.Errorf("the tests of %s fail with no mutant alive:\n%s", s.name, out)
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

// run runs the suite up to its first failure.
func (s *suite) run(variable string) (passed bool, out string) {
	ctx, cancel := context.WithTimeout(context.Background(), s.limit)
	defer cancel()
	command := exec.CommandContext(ctx, s.binary, s.args...)
	command.Dir = s.dir
	command.Env = append(os.Environ(), variable)
	command.WaitDelay = time.Second
	var text bytes.Buffer
	command.Stdout, command.Stderr = &text, &text
	err := command.Run()
	if ctx.Err() != nil {
		return false, hangs
	}
	return err == nil, text.String()
}

// try runs the suites that reach the mutant, until one notices it.
func try(m mutant, all []*suite) verdict {
	v := unreached
	for _, s := range all {
		if !s.reached[m.number] {
			continue
		}
		v = missed
		if passed, out := s.run(fmt.Sprint("MUTANT=", m.number)); !passed {
			return noticedBy(s.name, out)
		}
	}
	return v
}
