package metrics_test

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/metrics"
)

// The wall clock can be set, and the monotonic clock may stop while the machine sleeps.
func TestTheLessFavourableClockCounts(t *testing.T) {
	now := time.Now()
	for name, deadline := range map[string]time.Time{
		"the machine has slept":       moved(t, now.Add(-time.Minute), time.Hour), // the wall clock is past it
		"the wall clock was set back": moved(t, now.Add(time.Hour), -2*time.Hour), // the monotonic clock is
	} {
		h := metrics.New(nil)
		h.OnElected(context.Background(), hooks.Elected{Origin: web1, Token: 1, At: now, Deadline: deadline})
		if all := h.Standings(); all[0].Leading || all[0].Left != 0 {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

// moved returns at with a later monotonic reading, which package time cannot do.
func moved(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	layout := (*struct {
		wall uint64
		mono int64
	})(unsafe.Pointer(&at))
	layout.mono += int64(d)
	now := time.Now()
	if difference := at.Sub(now) - at.Round(0).Sub(now.Round(0)); difference.Round(time.Minute) != d {
		t.Fatalf("the layout of time.Time has changed: moved by %v, not %v", difference, d)
	}
	return at
}
