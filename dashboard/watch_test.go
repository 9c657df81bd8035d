package dashboard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errAway = errors.New("connection refused")

func TestTheServerIsAskedOncePerSecondHoweverManyLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		w := &watch{maxStuck: many, look: func(context.Context) (facts, error) {
			looks.Add(1)
			time.Sleep(100 * time.Millisecond)
			return facts{at: time.Now()}, nil
		}}
		var viewers sync.WaitGroup
		for range 100 {
			viewers.Go(func() {
				for range 100 { // ten seconds of looking
					if f, err := w.facts(t.Context()); err != nil || time.Since(f.at) > freshFor+100*time.Millisecond {
						t.Errorf("got facts of %v, %v", f.at, err)
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		viewers.Wait()
		if n := looks.Load(); n < 9 || n > 11 {
			t.Errorf("%d looks in ten seconds", n)
		}
		time.Sleep(time.Hour)
		if n := looks.Load(); n > 11 {
			t.Errorf("%d looks, while nobody looked", n)
		}
	})
}

func TestAServerThatAnswersSlowlyIsAskedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		w := &watch{maxStuck: many, look: func(context.Context) (facts, error) {
			looks++
			time.Sleep(time.Second)
			return facts{at: time.Now()}, nil
		}}
		for began := time.Now(); time.Since(began) < 110*time.Second; time.Sleep(100 * time.Millisecond) {
			if _, err := w.facts(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if looks < 9 || looks > 11 {
			t.Errorf("%d looks of a second each in 110 seconds, want a tenth of the time", looks)
		}
	})
}

func many() int { return maxStuckLooks }

func TestALookThatDoesNotReturnKeepsNobodyWaitingAndIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		hang := make(chan struct{})
		w := &watch{maxStuck: many, look: func(context.Context) (facts, error) {
			began := time.Now()
			if looks.Add(1) == 2 {
				<-hang
			}
			return facts{at: began}, nil
		}}
		first, err := w.facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * freshFor)
		var viewers sync.WaitGroup
		for range 10 {
			viewers.Go(func() {
				began := time.Now()
				f, err := w.facts(t.Context())
				if !errors.Is(err, context.DeadlineExceeded) || f.at != first.at || time.Since(began) != lookTimeout {
					t.Errorf("after %v got facts of %v, %v", time.Since(began), f.at, err)
				}
			})
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := w.facts(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a viewer who left got %v", err)
		}
		viewers.Wait()
		began := time.Now()
		if f, err := w.facts(t.Context()); !errors.Is(err, context.DeadlineExceeded) || f.at != first.at || time.Now() != began {
			t.Errorf("while it is left alone: after %v facts of %v, %v", time.Since(began), f.at, err)
		}
		if n := looks.Load(); n != 2 {
			t.Errorf("%d looks while one is under way", n)
		}
		time.Sleep(lookTimeout)
		now, err := w.facts(t.Context())
		if err != nil || now.at != time.Now() || looks.Load() != 3 {
			t.Errorf("while the second look is stuck, %d looks, and facts of %v, %v", looks.Load(), now.at, err)
		}
		close(hang) // its answer is older than what is known
		synctest.Wait()
		if f, err := w.facts(t.Context()); err != nil || f.at != now.at || w.stuck != 0 {
			t.Errorf("when it has returned: facts of %v, %v, and %d looks are stuck", f.at, err, w.stuck)
		}
	})
}

func TestLooksThatAllHangAreFew(t *testing.T) {
	for _, room := range []int{1, 3, maxStuckLooks} {
		synctest.Test(t, func(t *testing.T) {
			var looks atomic.Int64
			hang := make(chan struct{})
			defer synctest.Wait()
			defer close(hang)
			w := &watch{maxStuck: func() int { return room }, look: func(context.Context) (facts, error) {
				looks.Add(1)
				<-hang
				return facts{at: time.Now()}, nil
			}}
			for began := time.Now(); time.Since(began) < 15*time.Minute; time.Sleep(time.Second) {
				if _, err := w.facts(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v", err)
				}
			}
			if n := looks.Load(); n > int64(room) || n > 9 || n < int64(min(room, 7)) {
				t.Errorf("in a quarter of an hour %d looks, with room for %d", n, room)
			}
		})
	}
}

func TestALookThatReturnsLateIsFollowedByAnotherSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		w := &watch{maxStuck: func() int { return 1 }, look: func(context.Context) (facts, error) {
			<-hang
			return facts{at: time.Now()}, nil
		}}
		_, _ = w.facts(t.Context())
		time.Sleep(time.Hour)
		if f, err := w.facts(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !f.at.IsZero() {
			t.Errorf("got facts of %v, %v", f.at, err)
		}
		close(hang)
		synctest.Wait()
		time.Sleep(freshFor)
		if f, err := w.facts(t.Context()); err != nil || f.at != time.Now() {
			t.Errorf("got facts of %v, %v", f.at, err)
		}
	})
}

func TestTheViewerWhoAskedFirstMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watch{maxStuck: many, look: func(ctx context.Context) (facts, error) {
			select {
			case <-time.After(2 * time.Second):
				return facts{at: time.Now()}, nil
			case <-ctx.Done():
				return facts{}, ctx.Err()
			}
		}}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		go func() { _, _ = w.facts(ctx) }()
		synctest.Wait()
		if _, err := w.facts(t.Context()); err != nil {
			t.Errorf("the second viewer got %v", err)
		}
	})
}

func TestWhatWasKnownIsShownWhenTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away error
		w := &watch{maxStuck: many, look: func(context.Context) (facts, error) { return facts{at: time.Now()}, away }}
		before, err := w.facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		away = errAway
		time.Sleep(freshFor)
		if f, err := w.facts(t.Context()); !errors.Is(err, errAway) || f.at != before.at {
			t.Errorf("got facts of %v, %v", f.at, err)
		}
	})
}
