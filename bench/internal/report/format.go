package report

import (
	"fmt"
	"math"
)

// duration writes milliseconds with three significant digits.
func duration(ms float64) string {
	switch {
	case math.IsInf(ms, 0):
		return "never"
	case math.IsNaN(ms):
		return "–"
	case ms >= 10_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}

// number writes about three significant digits.
func number(x float64) string {
	switch {
	case x < 0 || math.IsNaN(x):
		return "–"
	case x == 0:
		return "0"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// ratio writes how many times the raw limit something is.
func ratio(x, raw float64) string {
	if math.IsInf(x, 0) || math.IsNaN(x) || math.IsNaN(raw) || raw == 0 {
		return ""
	}
	if r := x / raw; r < 10 {
		return fmt.Sprintf(" (%.1f×)", r)
	}
	return fmt.Sprintf(" (%.0f×)", x/raw)
}

// optional is a time that may not have come.
func optional(ms *float64) string {
	if ms == nil {
		return "–"
	}
	return duration(*ms)
}
