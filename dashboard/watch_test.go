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
		w := &watch{look: func(context.Context) (facts, error) {
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
		w := &watch{look: func(context.Context) (facts, error) {
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

func TestALookThatDoesNotReturnKeepsNobodyWaitingAndIsTheOnlyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		hang := make(chan struct{})
		w := &watch{look: func(context.Context) (facts, error) {
			if looks.Add(1) == 2 {
				<-hang
			}
			return facts{at: time.Now()}, nil
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
				if !errors.Is(err, context.DeadlineExceeded) || f.at != first.at || time.Since(began) != patience {
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
		if n := looks.Load(); n != 2 {
			t.Errorf("%d looks, and the second has not returned", n)
		}
		close(hang)
		synctest.Wait()
		if f, err := w.facts(t.Context()); err != nil || f.at == first.at {
			t.Errorf("when it has returned: facts of %v, %v", f.at, err)
		}
	})
}

func TestTheViewerWhoAskedFirstMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watch{look: func(ctx context.Context) (facts, error) {
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
		w := &watch{look: func(context.Context) (facts, error) { return facts{at: time.Now()}, away }}
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
