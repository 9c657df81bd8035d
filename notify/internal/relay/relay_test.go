package relay

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exchange makes connections, counts them, and can cut the current one.
type exchange struct {
	mu       sync.Mutex
	dialled  []time.Time
	open     int
	failures int // how many of the next dials fail
	spoken   chan string
	cut      chan error
}

func newExchange() *exchange { return &exchange{spoken: make(chan string), cut: make(chan error)} }

var errBusy = errors.New("the line is busy")

func (x *exchange) dial(context.Context) (Line, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dialled = append(x.dialled, time.Now())
	if x.failures > 0 {
		x.failures--
		return nil, errBusy
	}
	x.open++
	return x, nil
}

func (x *exchange) Hear(ctx context.Context) (string, error) {
	select {
	case payload := <-x.spoken:
		return payload, nil
	case err := <-x.cut:
		return "", err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (x *exchange) Close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open--
}

func (x *exchange) lines() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.open
}

// testSubscriber records its wake-ups.
type testSubscriber struct {
	mu    sync.Mutex
	heard []string
}

func (s *testSubscriber) wake(payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, payload)
}

func (s *testSubscriber) wants(t *testing.T, heard ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.heard, heard) {
		t.Errorf("got %q, want %q", s.heard, heard)
	}
}

func TestOneConnectionServesAllSubscribersAndIsClosedWithTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newExchange()
		r := New(x.dial, nil)
		var first, second testSubscriber
		firstLeaves := r.Subscribe(first.wake)
		first.wants(t, "") // the connection is new: notifications may have been missed
		secondLeaves := r.Subscribe(second.wake)
		x.spoken <- "free 1"
		first.wants(t, "", "free 1")
		second.wants(t, "free 1")
		firstLeaves()
		firstLeaves()
		x.spoken <- "free 2"
		first.wants(t, "", "free 1")
		second.wants(t, "free 1", "free 2")
		if n := x.lines(); n != 1 || len(x.dialled) != 1 {
			t.Errorf("%d lines, of %d dialled", n, len(x.dialled))
		}
		secondLeaves()
		synctest.Wait()
		if n := x.lines(); n != 0 {
			t.Errorf("%d lines", n)
		}
		defer r.Subscribe(first.wake)()
		first.wants(t, "", "free 1", "")
	})
}

func TestALostConnectionIsDialedUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newExchange()
		var reported []error
		r := New(x.dial, func(err error) { reported = append(reported, err) })
		var e testSubscriber
		leave := r.Subscribe(e.wake)
		e.wants(t, "")
		cut := errors.New("cut off")
		x.failures = 20
		x.cut <- cut
		time.Sleep(5 * time.Minute)
		e.wants(t, "", "")
		if len(reported) != 21 || !errors.Is(reported[0], cut) || !errors.Is(reported[20], errBusy) {
			t.Errorf("%d reports: %v", len(reported), reported)
		}
		for i, at := range x.dialled[2:] {
			pause := at.Sub(x.dialled[i+1])
			if pause < waits.Min/2 || pause > waits.Max {
				t.Errorf("dialled after %v", pause)
			}
		}
		x.cut <- cut // after a success the pauses are short again
		start := time.Now()
		time.Sleep(time.Second)
		e.wants(t, "", "", "")
		if pause := x.dialled[len(x.dialled)-1].Sub(start); pause > waits.Min {
			t.Errorf("dialled after %v", pause)
		}
		leave()
	})
}

func TestUnsubscribingEndsTheWaitForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newExchange()
		x.failures = 1000
		leave := New(x.dial, nil).Subscribe(func(string) { t.Error("woken without a line") })
		time.Sleep(time.Hour)
		start := time.Now()
		leave()
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

func TestAReportThatDoesNotReturnCostsNoConnection(t *testing.T) {
	for name, end := range map[string]func(){"a panic": func() { panic("oops") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newExchange()
				x.failures = 1
				var e testSubscriber
				defer New(x.dial, func(error) { end() }).Subscribe(e.wake)()
				time.Sleep(waits.Max)
				e.wants(t, "")
			})
		})
	}
}
