package elector

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/election"
)

func TestAReportCountsAtOnceAndUntilTheNext(t *testing.T) {
	for name, check := range map[string]func(context.Context) HealthReport{
		"with a check": func(context.Context) HealthReport {
			return HealthReport{Score: 0.9, Metadata: map[string]string{"cpu": "7"}}
		},
		"without a check": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reports []error
				m := newHealthMonitor(check, HealthPolicy{Minimum: 0.5, Interval: time.Second, StepDownAfter: 3, CampaignAfter: 3}, &election.Terms{}, func(err error) { reports = append(reports, err) })
				m.start()
				defer m.stop()
				<-m.firstCheck()
				healthy := m.healthy()
				for range 2 {
					m.push(healthOf(HealthReport{Score: 0.8, Unhealthy: true, Why: "disk full", Metadata: map[string]string{"disk": "100"}}))
				}
				if cause := context.Cause(healthy); healthy.Err() == nil || !strings.HasSuffix(cause.Error(), ": disk full") || len(reports) != 1 {
					t.Errorf("ended by %v, reported %v", cause, reports)
				}
				reported := time.Now()
				time.Sleep(10 * time.Second) // good checks do not outweigh it
				h := m.result()
				if h.Healthy || h.Why != "disk full" || h.Metadata["disk"] != "100" || (check != nil) != (h.Metadata["cpu"] == "7") || h.Minimum != 0.5 || !h.At.Equal(reported) {
					t.Errorf("got %+v", h)
				}
				m.push(healthOf(HealthReport{Score: 0.6}))
				if h := m.result(); !h.Healthy || m.healthy().Err() != nil || h.Score != 0.6 || h.Why != "" {
					t.Errorf("then %+v", h)
				}
				m.push(healthOf(HealthReport{Score: 0.4}))
				if cause := context.Cause(m.healthy()); m.healthy().Err() == nil || !strings.Contains(cause.Error(), "0.4, below") {
					t.Errorf("a low score: %v", cause)
				}
			})
		})
	}
}

func TestAReportOutlivesACampaignAndCallsNoHookBetweenThem(t *testing.T) {
	reports := 0
	m := newHealthMonitor(nil, HealthPolicy{Minimum: 0.5}, &election.Terms{}, func(error) { reports++ })
	m.push(healthOf(HealthReport{Why: "starting"}))
	if reports != 0 || m.result().Healthy {
		t.Errorf("%d hooks were called; %+v", reports, m.result())
	}
	m.start()
	if m.healthy().Err() == nil || reports != 1 {
		t.Errorf("healthy: %t, %d reports", m.healthy().Err() == nil, reports)
	}
	m.stop()
}

func TestALeaderThatMayStayIsNotEndedByItsHealth(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		term := s.lead(t)
		defer demote(term)
		s.monitor.push(healthOf(HealthReport{}))
		if !term.Valid() || s.monitor.healthy().Err() == nil {
			t.Error("the policy is not kept")
		}
	}, WithHealth(nil, HealthPolicy{StayWhenUnhealthy: true}))
}

func TestACheckSaysWhyItIsBad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got error
		m := newHealthMonitor(func(context.Context) HealthReport { return HealthReport{Score: 0.1, Why: "queue of 900"} },
			HealthPolicy{Minimum: 0.5, Interval: time.Second, StepDownAfter: 1, CampaignAfter: 1}, &election.Terms{}, func(err error) { got = err })
		m.start()
		<-m.firstCheck()
		m.stop()
		if got == nil || got.Error() != "elector: the candidate is unhealthy: the score is 0.1, below the minimum of 0.5: queue of 900" {
			t.Errorf("got %v", got)
		}
	})
}
