// Package figures reads the medians of the bench and rounds them, for the tables and the
// pictures of the documents. Both show the same digits.
package figures

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Gaps are how long nobody led, in milliseconds, by system and fault. Never is infinite.
type Gaps map[[2]string][]float64

// Read reads bench/results.json.
func Read(file string) (Gaps, error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	var run struct {
		Failovers []struct {
			System, Fault string
			Gap           *float64 // ms; nil is never
		}
	}
	if err := json.Unmarshal(text, &run); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	gaps := Gaps{}
	for _, f := range run.Failovers {
		gap := math.Inf(1)
		if f.Gap != nil {
			gap = *f.Gap
		}
		gaps[[2]string{f.System, f.Fault}] = append(gaps[[2]string{f.System, f.Fault}], gap)
	}
	return gaps, nil
}

// Median is the nearest rank, as in bench/RESULTS.md.
func (g Gaps) Median(system, fault string) (ms float64, err error) {
	all := slices.Sorted(slices.Values(g[[2]string{system, fault}]))
	if len(all) == 0 {
		return 0, fmt.Errorf("the bench has no %s of %s", fault, system)
	}
	return all[(len(all)-1)/2], nil
}

// Duration formats milliseconds with two digits.
func Duration(ms float64) string {
	switch {
	case math.IsInf(ms, 1):
		return "never"
	case ms < 99.5:
		return TwoDigits(ms) + " ms"
	}
	return TwoDigits(ms/1000) + " s"
}

// TwoDigits rounds once: a text that was rounded before is no longer the figure.
func TwoDigits(value float64) string {
	switch {
	case value >= 9.95:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case value >= 0.995:
		return strconv.FormatFloat(value, 'f', 1, 64)
	}
	return strconv.FormatFloat(value, 'f', 2, 64)
}
