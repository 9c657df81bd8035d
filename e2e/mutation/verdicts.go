package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

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
