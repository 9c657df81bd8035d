package elector

import (
	"context"
	"testing"
	"testing/quick"
	"testing/synctest"
	"time"
)

func TestBackoffDoublesUpToItsCap(t *testing.T) {
	b := backoff{min: time.Second, max: 10 * time.Second}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
		if got := b.after(i + 1); got != want*time.Second {
			t.Errorf("after %d failures: %v, want %v", i+1, got, want*time.Second)
		}
	}
	same := backoff{min: time.Second, max: time.Second}
	if same.after(1) != time.Second || same.after(1<<30) != time.Second {
		t.Error("a backoff whose bounds are the same is not constant")
	}
}

func TestBackoffNeverLeavesItsBoundsNorShrinks(t *testing.T) {
	bounded := func(low, high uint32, failures uint16) bool {
		b := backoff{min: minRetry + time.Duration(low), max: minRetry + time.Duration(low) + time.Duration(high)}
		d := b.after(int(failures) + 1)
		return d >= b.min && d <= b.max && b.after(int(failures)+2) >= d
	}
	if err := quick.Check(bounded, nil); err != nil {
		t.Error(err)
	}
}

func FuzzJitterIsWithinTheLastQuarter(f *testing.F) {
	for _, d := range []int64{int64(minRetry), int64(defaultRetry), int64(maxRetry)} {
		f.Add(d)
	}
	f.Fuzz(func(t *testing.T, n int64) {
		d := min(max(time.Duration(n), minRetry), maxRetry)
		if got := jitter(d); got > d || got < d-d/4 || got <= 0 {
			t.Errorf("jitter(%v) = %v", d, got)
		}
	})
}

func TestJitterSpreads(t *testing.T) {
	lowest, highest := time.Hour, time.Duration(0)
	for range 1000 {
		d := jitter(time.Second)
		lowest, highest = min(lowest, d), max(highest, d)
	}
	if lowest > 760*time.Millisecond || highest < 990*time.Millisecond {
		t.Errorf("from %v to %v", lowest, highest)
	}
}

func TestTheFirstWaitSpreadsFurther(t *testing.T) {
	lowest, highest := time.Hour, time.Duration(0)
	for range 1000 {
		d := spread(time.Second)
		lowest, highest = min(lowest, d), max(highest, d)
	}
	if lowest < time.Second/8 || lowest > 150*time.Millisecond || highest < 990*time.Millisecond || highest > time.Second {
		t.Errorf("from %v to %v", lowest, highest)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if !sleep(t.Context(), time.Hour) || time.Since(start) != time.Hour {
			t.Errorf("slept %v", time.Since(start))
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		start = time.Now()
		if sleep(ctx, time.Hour) || time.Since(start) != time.Minute {
			t.Errorf("slept %v", time.Since(start))
		}
	})
}
