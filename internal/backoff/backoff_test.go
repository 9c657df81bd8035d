package backoff

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"testing/quick"
	"testing/synctest"
	"time"
)

// The bounds of an elector's retry interval and backoff.
const (
	least = 10 * time.Millisecond
	most  = 24 * time.Hour
)

func TestBackoffDoublesUpToItsCap(t *testing.T) {
	b := Backoff{Min: time.Second, Max: 10 * time.Second}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
		if got := b.After(i + 1); got != want*time.Second {
			t.Errorf("after %d failures: %v, want %v", i+1, got, want*time.Second)
		}
	}
	same := Backoff{Min: time.Second, Max: time.Second}
	if same.After(1) != time.Second || same.After(1<<30) != time.Second {
		t.Error("a backoff whose bounds are the same is not constant")
	}
}

func TestBackoffNeverLeavesItsBoundsNorShrinks(t *testing.T) {
	bounded := func(low, high uint32, failures uint16) bool {
		b := Backoff{Min: least + time.Duration(low), Max: least + time.Duration(low) + time.Duration(high)}
		d := b.After(int(failures) + 1)
		return d >= b.Min && d <= b.Max && b.After(int(failures)+2) >= d
	}
	if err := quick.Check(bounded, nil); err != nil {
		t.Error(err)
	}
}

func FuzzJitterIsWithinTheLastQuarter(f *testing.F) {
	for _, d := range []int64{int64(least), int64(time.Second), int64(most)} {
		f.Add(d)
	}
	f.Fuzz(func(t *testing.T, n int64) {
		d := min(max(time.Duration(n), least), most)
		if got := Jitter(d); got > d || got < d-d/4 || got <= 0 {
			t.Errorf("Jitter(%v) = %v", d, got)
		}
	})
}

func TestJitterSpreads(t *testing.T) {
	lowest, highest := time.Hour, time.Duration(0)
	for range 1000 {
		d := Jitter(time.Second)
		lowest, highest = min(lowest, d), max(highest, d)
	}
	if lowest > 760*time.Millisecond || highest < 990*time.Millisecond {
		t.Errorf("from %v to %v", lowest, highest)
	}
}

func TestSpreadSpreadsFurther(t *testing.T) {
	lowest, highest := time.Hour, time.Duration(0)
	for range 1000 {
		d := Spread(time.Second)
		lowest, highest = min(lowest, d), max(highest, d)
	}
	if lowest < time.Second/8 || lowest > 150*time.Millisecond || highest < 950*time.Millisecond || highest > time.Second {
		t.Errorf("from %v to %v", lowest, highest)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if !Sleep(t.Context(), time.Hour) || time.Since(start) != time.Hour {
			t.Errorf("slept %v", time.Since(start))
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		start = time.Now()
		if Sleep(ctx, time.Hour) || time.Since(start) != time.Minute {
			t.Errorf("slept %v", time.Since(start))
		}
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		impatient, late := errors.New("impatient"), make(chan struct{})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, impatient)
		defer cancel()
		began := time.Now()
		_, err := Await(ctx, func(context.Context) (int, error) {
			<-late // it ignores its context
			return 1, nil
		})
		if took := time.Since(began); !errors.Is(err, impatient) || took != time.Second {
			t.Errorf("got %v after %v", err, took)
		}
		close(late) // so that its goroutine ends
	})
}

func TestAwaitReturnsAnAnswerInTime(t *testing.T) {
	refused := errors.New("refused")
	got, err := Await(t.Context(), func(context.Context) (int, error) { return 7, refused })
	if got != 7 || err != refused {
		t.Errorf("got %d, %v", got, err)
	}
}

func TestACallOfTheUsersEndsAlone(t *testing.T) {
	for name, end := range map[string]func(){"a panic": func() { panic("of the user") }, "Goexit": runtime.Goexit, "a return": func() {}} {
		called := false
		Guard(func() {
			called = true
			end()
		})
		if !called {
			t.Errorf("%s: it was not called", name)
		}
	}
}

func TestBackoffReachesItsCapWithoutOverflow(t *testing.T) {
	for most, want := range map[time.Duration]time.Duration{2: 2, 3: 2, 4: 2} {
		if got := (Backoff{Min: 1, Max: most}).After(2); got != want {
			t.Errorf("up to %d: %d, want %d", most, got, want)
		}
	}
	if got := (Backoff{Min: math.MaxInt64 / 3, Max: math.MaxInt64}).After(3); got != math.MaxInt64 {
		t.Errorf("got %v", got)
	}
}

func TestDrawFromReplacesTheSource(t *testing.T) {
	before := draw
	defer DrawFrom(before)
	DrawFrom(func(d time.Duration) time.Duration { return d - 1 })
	if j, s := Jitter(time.Second), Spread(time.Second); j != 750*time.Millisecond || s != 125*time.Millisecond {
		t.Errorf("got %v, %v", j, s)
	}
}
