package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

func noticedBy(suite string, err error) verdict {
	if errors.Is(err, errHangs) {
		return verdict(noticed + suite + ", which hangs")
	}
	return verdict(noticed + suite)
}

func (v verdict) noticed() bool { return strings.HasPrefix(string(v), noticed) }

// verdicts are kept in a file, a line for each.
type verdicts struct {
	mu   sync.Mutex
	file *os.File
	all  map[string]verdict
}

// openVerdicts reads what is kept in a file, if that is wanted, and goes on writing there.
func openVerdicts(name string, again bool) (*verdicts, error) {
	v := &verdicts{all: map[string]verdict{}}
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if again {
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
		kept, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("there is nothing to go on from: %w", err)
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
