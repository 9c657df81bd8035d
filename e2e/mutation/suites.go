package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	tests   string // a regular expression
	args    []string
	reached map[int][]string         // by the planted mutant, the tests that run its code
	took    map[string]time.Duration // each test, without a mutant
}

// suites returns the suites of a copy, in running order: those that notice most in the least
// time come first.
func suites(dir string) (all []*suite, err error) {
	parts, err := filepath.Glob(filepath.Join(dir, "internal", "*", "*_test.go"))
	if err != nil {
		return nil, err
	}
	for i, file := range parts {
		parts[i] = filepath.Dir(file)
	}
	for _, folder := range slices.Compact(parts) {
		all = append(all, newSuite(dir, suite{name: filepath.Join("internal", filepath.Base(folder))}))
	}
	for _, s := range []suite{
		{name: "elector"},
		{name: "sqlmock_test"},
		{name: "e2e/simulation", tests: "^TestSimulation$", args: []string{"-seeds=300", "-simplify=false"}},
		{name: "elector/memory_test"},
		{name: "shard", tests: "Quota|Share|FewAtATime|Health|WorkReturns|CannotLook"},
	} {
		all = append(all, newSuite(dir, s))
	}
	return all, nil
}

// newSuite completes a suite of a copy.
func newSuite(dir string, s suite) *suite {
	s.dir = filepath.Join(dir, s.name)
	s.binary = filepath.Join(dir, ".bin", filepath.Base(s.name))
	s.tests = cmp.Or(s.tests, "^Test") // an example sleeps
	return &s
}

func (s *suite) compile(ctx context.Context) error {
	command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", s.binary, ".")
	command.Dir = s.dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", s.name, err, out)
	}
	return nil
}

// build builds the suites and runs each once without a mutant.
func build(ctx context.Context, dir string) ([]*suite, error) {
	all, err := suites(dir)
	if *onPath {
		all, err = unitSuites(ctx, dir)
	}
	if err != nil {
		return nil, err
	}
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

// measure runs each test of the suite without a mutant. It checks that it passes, and measures
// its time and the mutants that it reaches.
func (s *suite) measure(ctx context.Context) error {
	s.reached, s.took = map[int][]string{}, map[string]time.Duration{}
	names, err := exec.CommandContext(ctx, s.binary, "-test.list="+s.tests).Output()
	if err != nil {
		return fmt.Errorf("list the tests of %s: %w", s.name, err)
	}
	began := time.Now()
	for name := range strings.FieldsSeq(string(names)) {
		reached, started := filepath.Join(s.dir, name+".reached"), time.Now()
		if out, err := s.run(ctx, "^"+name+"$", 10*time.Minute, "MUTANTS_REACHED="+reached); err != nil {
			return fmt.Errorf("the tests of %s without a mutant: %w\n%s", s.name, err, out)
		}
		s.took[name] = time.Since(started)
		numbers, err := os.ReadFile(reached)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for line := range strings.FieldsSeq(string(numbers)) {
			n, err := strconv.Atoi(line)
			if err != nil {
				return err
			}
			s.reached[n] = append(s.reached[n], name)
		}
	}
	fmt.Printf("%-20s reaches %4d mutants in %v\n", s.name, len(s.reached), time.Since(began).Round(time.Millisecond))
	return nil
}

// run runs these tests of the suite until the first failure. One that is still running at the
// limit has failed, and so have all if they take 4 GB of memory, as an endless loop may.
func (s *suite) run(ctx context.Context, tests string, limit time.Duration, variable string) (out string, err error) {
	args := []string{"-c", `ulimit -v 4000000 && exec "$0" "$@"`, s.binary, "-test.failfast", "-test.short", "-test.timeout=" + limit.String(), "-test.run=" + tests}
	command := exec.CommandContext(ctx, "sh", append(args, s.args...)...)
	command.Dir = s.dir
	command.Env = append(os.Environ(), variable)
	command.WaitDelay = time.Second
	output, err := command.CombinedOutput()
	return string(output), err
}

// runReached runs tests with a mutant. They may take much longer than without it.
func (s *suite) runReached(ctx context.Context, number int, tests ...string) (out string, err error) {
	limit := 3 * time.Second
	for _, name := range tests {
		limit += 8 * s.took[name]
	}
	return s.run(ctx, "^("+strings.Join(tests, "|")+")$", limit, fmt.Sprint("MUTANT=", number))
}

// A notice is a test that has noticed a mutant.
type notice struct {
	suite *suite
	test  string
}

// notices are the quick tests that have noticed a mutant, the latest first. They are likely to
// notice the next one in the same function.
type notices struct {
	mu  sync.Mutex
	all []notice
}

func (n *notices) add(suite *suite, test string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found := (notice{suite, test}); test != "" && suite.took[test] < time.Second {
		n.all = slices.DeleteFunc(n.all, func(other notice) bool { return other == found })
		n.all = slices.Insert(n.all, 0, found)
	}
}

// of returns some of those that reach the mutant.
func (n *notices) of(number int) (some []notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.all {
		if len(some) < 8 && slices.Contains(one.suite.reached[number], one.test) {
			some = append(some, one)
		}
	}
	return some
}

// try runs the tests that reach the mutant, until one fails: first the one that noticed it in an
// earlier run, if any. If ctx has ended, the result is meaningless.
func try(ctx context.Context, number int, all []*suite, lately *notices, before result) result {
	v := unreached
	for _, one := range append(before.by(number, all), lately.of(number)...) {
		if out, err := one.suite.runReached(ctx, number, one.test); err != nil {
			lately.add(one.suite, one.test)
			return noticedBy(one.suite.name, out)
		}
	}
	for _, s := range all {
		tests := s.reached[number]
		if len(tests) == 0 {
			continue
		}
		v = missed
		if out, err := s.runReached(ctx, number, tests...); err != nil {
			lately.add(s, failedTest(out))
			return noticedBy(s.name, out)
		}
	}
	return v
}

// A result says whether the tests noticed a mutant.
type result string

const (
	missed    result = "not noticed"
	unreached result = "not reached" // or it made no difference where it was reached
	noticed          = "noticed by "
)

const timedOut = "panic: test timed out"

var (
	failures = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	running  = regexp.MustCompile(`(?m)^\t\t(Test\w+)`) // at the limit
)

// failedTest names the test that the output of a suite says has failed, if it says so.
func failedTest(out string) string {
	by := failures
	if strings.Contains(out, timedOut) {
		by = running
	}
	if found := by.FindStringSubmatch(out); found != nil {
		return found[1]
	}
	return ""
}

// noticedBy returns the result for a suite that failed with that output.
func noticedBy(suite, out string) result {
	v := result(noticed + suite)
	if test := failedTest(out); test != "" {
		v += ": " + result(test)
	}
	if strings.Contains(out, timedOut) {
		v += ", which hangs"
	}
	return v
}

func (v result) noticed() bool { return strings.HasPrefix(string(v), noticed) }

// by returns the test that has noticed a mutant, if it reaches the mutant of that number.
func (v result) by(number int, all []*suite) []notice {
	suite, test, _ := strings.Cut(strings.TrimPrefix(string(v), noticed), ": ")
	test, _, _ = strings.Cut(test, ",")
	for _, s := range all {
		if s.name == suite && slices.Contains(s.reached[number], test) {
			return []notice{{s, test}}
		}
	}
	return nil
}

// results are stored in a file, one per line.
type results struct {
	mu     sync.Mutex
	file   *os.File
	all    map[string]result
	before map[string]result // those of earlier runs, which say what to try first
}

// openResults opens the file for appending. Unless again is set, it discards the earlier
// results.
func openResults(name string, again bool) (*results, error) {
	v := &results{all: map[string]result{}, before: map[string]result{}}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(name), "*.tsv"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := readResults(file, v.before); err != nil {
			return nil, err
		}
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if again {
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
		if err := readResults(name, v.all); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	v.file, err = os.OpenFile(name, flags, 0o644)
	return v, err
}

func readResults(name string, into map[string]result) error {
	kept, err := os.ReadFile(name)
	for line := range strings.Lines(string(kept)) {
		if value, key, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			into[key] = result(value)
		}
	}
	return err
}

func (v *results) set(m mutant, to result) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all[m.key()] = to
	fmt.Fprintf(v.file, "%s\t%s\n", to, m.key())
}

func (v *results) get(m mutant) result {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all[m.key()]
}

func (v *results) close() { v.file.Close() }
