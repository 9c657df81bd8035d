package elector

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/election"
)

// scripted is a check with one rune for each call: '+' is good, '-' is bad, 'p' panics, 'h'
// blocks until its context ends. The last rune repeats.
type scripted struct {
	script string
	asked  atomic.Int64
}

func (s *scripted) check(ctx context.Context) HealthReport {
	i := min(int(s.asked.Add(1)), len(s.script)) - 1
	switch s.script[i] {
	case '+':
		return HealthReport{Score: 1}
	case 'p':
		panic("oops")
	case 'h':
		<-ctx.Done()
	}
	return HealthReport{Score: 0}
}

// awaitHealth waits until the candidate is healthy, in virtual time.
func awaitHealth(m *healthMonitor) {
	for m.healthy().Err() != nil {
		time.Sleep(time.Millisecond)
		synctest.Wait()
	}
}

// play runs a script and returns the candidate's health after each check, and the reports.
func play(t *testing.T, script string, bad, good int) (healths string, reports []error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{script: script}
		m := newHealthMonitor(s.check, HealthPolicy{Minimum: 0.5, Interval: time.Second, StepDownAfter: bad, CampaignAfter: good}, &election.Terms{},
			func(err error) { reports = append(reports, err) })
		m.start()
		defer m.stop()
		time.Sleep(time.Millisecond)
		for _, c := range script {
			if c == 'h' {
				time.Sleep(time.Second) // until it times out
			}
			synctest.Wait()
			health := "-"
			if m.result().Healthy {
				health = "+"
			}
			if healthy := m.healthy().Err() == nil; healthy != m.result().Healthy {
				t.Errorf("the result is %s, but the context says healthy: %t", health, healthy)
			}
			healths += health
			if c != 'h' {
				time.Sleep(time.Second)
			}
		}
	})
	return healths, reports
}

func TestHealthHasHysteresis(t *testing.T) {
	for _, c := range []struct {
		script, want string
		bad, good    int
	}{
		{"+", "+", 3, 3},
		{"-", "-", 3, 3},             // the first check alone decides
		{"+--+--+", "+++++++", 3, 3}, // a flapping check changes nothing
		{"+---++-+++", "+++------+", 3, 3},
		{"-+++---", "---+++-", 3, 3},
		{"+-+-+", "+-+-+", 1, 1},
		{"+-++-", "+--+-", 1, 2},
		{"+p+p+pp+", "++++++-", 2, 9},
	} {
		got, _ := play(t, c.script, c.bad, c.good)
		if want := c.want; got[:len(want)] != want {
			t.Errorf("%s: got %s, want %s", c.script, got, want)
		}
	}
}

func TestEachChangeToUnhealthyIsReportedOnceWithItsCause(t *testing.T) {
	_, reports := play(t, "-+-", 1, 1)
	if len(reports) != 2 || reports[0].Error() != "elector: the candidate is unhealthy: the score is 0, below the minimum of 0.5" {
		t.Errorf("got %v", reports)
	}
	_, reports = play(t, "p-+p", 1, 1)
	if len(reports) != 2 || !errors.Is(reports[0], errCheckPanicked) || !errors.Is(reports[1], errCheckPanicked) {
		t.Errorf("got %v", reports)
	}
	_, reports = play(t, "hhh", 3, 3)
	if len(reports) != 1 || !errors.Is(reports[0], errCheckTimeout) {
		t.Errorf("got %v", reports)
	}
}

func TestEveryNumberIsClampedToAScore(t *testing.T) {
	for given, want := range map[float64]float64{0: 0, 0.3: 0.3, 1: 1, -1: 0, 7: 1, math.Inf(1): 1, math.Inf(-1): 0, math.NaN(): 0} {
		if got := clampScore(given); got != want {
			t.Errorf("%v is %v, want %v", given, got, want)
		}
	}
}

// While a check ignores its context, no second one starts, not even after a restart of the
// monitor.
func TestAHangingCheckUsesOneGoroutineOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var begun atomic.Int64
		m := newHealthMonitor(func(context.Context) HealthReport {
			begun.Add(1)
			<-release
			return HealthReport{Score: 1}
		}, HealthPolicy{Minimum: 0.5, Interval: time.Second, StepDownAfter: 3, CampaignAfter: 2}, &election.Terms{}, func(error) {})
		for range 2 {
			m.start()
			time.Sleep(time.Hour)
			if n := begun.Load(); n != 1 || m.result().Healthy || !errors.Is(m.result().Err, errCheckTimeout) {
				t.Errorf("%d checks were started, and the last is %+v", n, m.result())
			}
			m.stop()
		}
		m.start()
		defer m.stop()
		<-m.firstCheck()
		close(release)
		awaitHealth(m)
		if n := begun.Load(); n != 3 { // the one that hung, and two good ones
			t.Errorf("%d checks were begun", n)
		}
	})
}

func TestHealthyEndsAndRecoveredFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{script: "+--+"}
		m := newHealthMonitor(s.check, HealthPolicy{Minimum: 1, Interval: time.Second, StepDownAfter: 2, CampaignAfter: 1}, &election.Terms{}, func(error) {})
		if !errors.Is(context.Cause(m.healthy()), errUnchecked) {
			t.Error("healthy before the first check")
		}
		start := time.Now()
		m.start()
		defer m.stop()
		<-m.firstCheck()
		healthy := m.healthy()
		var times []time.Duration
		<-healthy.Done()
		times = append(times, time.Since(start))
		awaitHealth(m)
		times = append(times, time.Since(start))
		if want := []time.Duration{2 * time.Second, 3 * time.Second}; !slices.Equal(times, want) {
			t.Errorf("unhealthy and recovered at %v, want %v", times, want)
		}
		if m.healthy().Err() != nil || healthy.Err() == nil {
			t.Error("the context before is that of now")
		}
	})
}

func TestStopEndsTheContextOfTheCheckAndReportsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{script: "h"}
		m := newHealthMonitor(s.check, HealthPolicy{Minimum: 1, Interval: time.Minute, StepDownAfter: 1, CampaignAfter: 1}, &election.Terms{},
			func(err error) { t.Errorf("reported %v", err) })
		m.stop() // before a Start
		m.start()
		synctest.Wait()
		m.stop()
		m.stop()
		if !m.result().At.IsZero() {
			t.Errorf("a cancelled check returned %+v", m.result())
		}
		s = &scripted{script: "+"}
		m.check = s.check
		for range 20 {
			m.start()
			time.Sleep(time.Second)
			m.stop()
			synctest.Wait()
		}
		if n := s.asked.Load(); n != 20 { // and none that begins with a context that has ended
			t.Errorf("%d checks", n)
		}
	})
}

// As after a while in which the process stood still.
func TestChecksThatWereMissedAreNotMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{script: "-+"}
		m := newHealthMonitor(s.check, HealthPolicy{Minimum: 0.5, Interval: time.Second, StepDownAfter: 1, CampaignAfter: 1}, &election.Terms{},
			func(error) { time.Sleep(10 * time.Second) })
		m.start()
		defer m.stop()
		time.Sleep(12500 * time.Millisecond)
		if n := s.asked.Load(); n != 4 { // at 0, 10, 11 and 12 s
			t.Errorf("%d checks", n)
		}
	})
}

// stop waits for a running report.
func TestNothingIsReportedAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := 0
		m := newHealthMonitor((&scripted{script: "-"}).check, HealthPolicy{Minimum: 0.5, Interval: time.Second, StepDownAfter: 1, CampaignAfter: 1}, &election.Terms{},
			func(error) { time.Sleep(time.Second); reported++ })
		m.start()
		synctest.Wait()
		m.stop()
		if reported != 1 {
			t.Errorf("%d reports when Stop returns", reported)
		}
	})
}

// Whoever hears of both, such as a log, explains the end of the term by the report.
func TestAnUnhealthyCandidateIsReportedBeforeItsTermEnds(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		term, reported := s.lead(t), false
		defer demote(term)
		m := newHealthMonitor(nil, HealthPolicy{Minimum: 0.5}, s.room, func(error) {
			if reported = true; term.ctx.Err() != nil {
				t.Error("the term has ended before")
			}
		})
		m.start()
		defer m.stop()
		m.push(healthOf(HealthReport{}))
		if !reported || term.ctx.Err() == nil || reasonOf(context.Cause(term.ctx)) != hooks.Unhealthy {
			t.Errorf("reported: %t; the term: %v", reported, context.Cause(term.ctx))
		}
	})
}
