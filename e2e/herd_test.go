//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

const (
	herdSize  = 200
	herdRetry = time.Second       // the default of polling candidates
	herdMean  = herdRetry * 7 / 8 // jitter shortens each wait by up to a quarter
)

// A herd is many candidates of one election on a few pools, with one recorder.
type herd struct {
	rec      *hookstest.Recorder
	counters []*counter
	all      []*elector.Elector
}

func (s *server) herd(t *testing.T, election string) *herd {
	t.Helper()
	h := &herd{rec: hookstest.NewRecorder()}
	for i := range 4 {
		pool, counter := mixed.openCounted(t, i, s.DSN())
		pool.SetMaxOpenConns(10)
		pool.SetMaxIdleConns(10)
		h.counters = append(h.counters, counter)
		for range herdSize / 4 {
			e, err := elector.New(pool, election, elector.WithCandidateID(unique(fmt.Sprint("herd-", len(h.all)))),
				elector.WithStandby(elector.Poll), elector.WithHooks(hooks.Funcs{Elected: h.rec.OnElected,
					Demoted: h.rec.OnDemoted, Campaign: h.rec.OnCampaign}))
			check(t, err)
			h.all = append(h.all, e)
		}
	}
	for _, e := range h.all { // all at the same time, as in a deployment
		check(t, e.Start(context.Background()))
		t.Cleanup(func() { expect(t, e.Stop(soon(t))) })
	}
	return h
}

// counts returns how many attempts and other statements the herd has sent since before.
func (h *herd) counts(before []map[string]int) (attempts, others int, now []map[string]int) {
	for i, c := range h.counters {
		if before != nil {
			since := c.since(before[i])
			attempts += since["TryLock"]
			others += total(since) - since["TryLock"]
		}
		now = append(now, c.now())
	}
	return attempts, others, now
}

// spread checks that the attempts that began in a span of time are spread over it: no tenth of
// it has half of them, and there are not too many.
func (h *herd) spread(t *testing.T, when string, from time.Time, span time.Duration) {
	t.Helper()
	const parts = 10
	var histogram [parts]int
	n := 0
	for _, e := range h.rec.Campaigns() {
		began := e.At.Add(-e.Took).Sub(from)
		if began >= 0 && began < span {
			histogram[began*parts/span]++
			n++
		}
	}
	t.Logf("%s: %d attempts: %v", when, n, histogram)
	for _, share := range histogram {
		if share > n/2+10 {
			t.Errorf("%s: %d attempts in %v are not spread: %v", when, n, span, histogram)
			return
		}
	}
	if most := int(float64(herdSize)*span.Seconds()/(herdRetry*3/4).Seconds()) + herdSize/10; n > most {
		t.Errorf("%s: %d attempts in %v, want at most %d", when, n, span, most)
	}
}

func TestManyFollowersSpreadTheirAttempts(t *testing.T) {
	inSessionScope(t, "a pooler lets few check the server at once")
	t.Parallel()
	cluster := own(t, pgcluster.WithSetting("max_connections", "60"))
	s := on(t, cluster)
	h := s.herd(t, s.election(t))
	leads := h.rec.Cursor()
	old := next[hooks.Elected](t, leads, nil)
	eventually(t, "all have made an attempt", func() bool {
		tried := map[string]bool{}
		for _, e := range h.rec.Campaigns() {
			if e.Outcome != hooks.Failed { // an attempt fails while too many others check the server
				tried[e.CandidateID] = true
			}
		}
		return len(tried) == herdSize
	})
	began := time.Now()
	time.Sleep(herdRetry)
	h.spread(t, "after all started at once", began, herdRetry)

	_, _, before := h.counts(nil)
	began = time.Now()
	time.Sleep(2 * herdRetry)
	attempts, others, before := h.counts(before)
	took := time.Since(began)
	if want := float64(herdSize) * took.Seconds() / herdMean.Seconds(); float64(attempts) > 1.2*want || attempts == 0 {
		t.Errorf("%d attempts in %v, want about %.0f", attempts, took, want)
	}
	if others > 20 {
		t.Errorf("%d other statements in %v", others, took)
	}

	began = time.Now()
	s.terminate(t, s.holders(t, h.all[0].Key())[0])
	fresh := next[hooks.Elected](t, leads, nil)
	if fresh.Token <= old.Token {
		t.Errorf("token %d does not rise above %d", fresh.Token, old.Token)
	}
	time.Sleep(herdRetry)
	h.spread(t, "after the loss of the leader", began, herdRetry)
	if attempts, _, _ := h.counts(before); float64(attempts) > 1.5*float64(herdSize)*time.Since(began).Seconds()/herdMean.Seconds() {
		t.Errorf("%d attempts in %v after the loss of the leader", attempts, time.Since(began))
	}

	check(t, cluster.Restart(soon(t), pgcluster.Fast))
	next(t, leads, func(e hooks.Elected) bool { return e.Token > fresh.Token })
	began = time.Now()
	time.Sleep(herdRetry + herdRetry/2)
	h.spread(t, "after a restart of the server", began, herdRetry)
}
