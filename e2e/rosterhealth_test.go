//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
)

// Two processes report their health, each at a time of its own. A third one looks. Publications are a minute apart.
func TestAChangeOfHealthIsPublishedAtOnceForOthersToSee(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema := s.schema(t)
		r := rosterOn(t, d.open(t, 0, s.DSN()), schema)
		f := s.launch(t, d, 2, func(_ int, s *settings) { s.Roster, s.Publish = schema, time.Minute })
		leader := f.leader(t, 0)
		follower := f.another(t, leader.ID)
		key := elector.KeyFromName(f.election)
		sees := func(id string) (found roster.Candidate) {
			all, err := r.Candidates(soon(t), key)
			check(t, err)
			for _, c := range all {
				if c.CandidateID == id {
					found = c
				}
			}
			return found
		}
		eventually(t, "both are published", func() bool { return sees(leader.ID).State == roster.Live && sees(follower).State == roster.Live })
		scores := []float64{0.75, 0.625}
		for i, id := range []string{leader.ID, follower} {
			f.command(t, id, fmt.Sprintf("%s %v busy %d", commandReport, scores[i], 40+i))
			began := time.Now()
			var c roster.Candidate
			eventually(t, "the health of "+id+" is published", func() bool { c = sees(id); return c.Why != "" })
			t.Logf("%s: after %v", id, time.Since(began)) // a second, on a machine that has the time
			if *c.Health != scores[i] || !*c.IsHealthy || *c.Minimum != 0.5 || c.Why != "busy" || c.HealthMetadata["queue"] != fmt.Sprint(40+i) ||
				c.CheckedAt.IsZero() || c.CheckedAt.After(c.PublishedAt) {
				t.Errorf("got %+v", c)
			}
		}
		f.command(t, follower, commandReport+" 0.1 full 900")
		eventually(t, "that the follower is unhealthy is published", func() bool { c := sees(follower); return !*c.IsHealthy && c.Why == "full" })
	})
}

// Each of two processes publishes for itself. A third one observes the leader.
func TestAnObserverSeesWhatAnotherProcessPublishesAnew(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema := s.schema(t)
		pool := d.open(t, 0, s.DSN())
		r := rosterOn(t, pool, schema)
		f := s.launch(t, d, 2, func(_ int, s *settings) { s.Roster, s.Publish = schema, time.Minute })
		leader := f.leader(t, 0)
		follower := f.another(t, leader.ID)
		e, err := elector.New(pool, f.election, elector.WithLease(lease))
		check(t, err)
		ctx, stop := context.WithCancel(soon(t))
		defer stop()
		steps := 0
		for l, err := range r.Observe(ctx, e) {
			check(t, err)
			switch got := l.Published.Metadata["zone"]; {
			case got == "theirs":
				t.Error("it is what the follower has published")
			case steps == 0 && l.Published.CandidateID == leader.ID:
				f.command(t, follower, commandPublish+" zone theirs")
				f.command(t, leader.ID, commandPublish+" zone a")
				steps++
			case steps == 1 && got == "a":
				f.command(t, leader.ID, commandPublish+" zone b")
				steps++
			case steps == 2 && got == "b":
				steps++
			}
			if steps == 3 {
				break
			}
		}
		if steps != 3 {
			t.Errorf("step %d", steps)
		}
	})
}

// A stale score does not get a fresh time, candidates of one process have metadata each, and Observe yields
// what the leader says anew.
func TestObserveFollowsWhatTheLeaderPublishesForItsElection(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema := s.schema(t)
		pool := d.open(t, 0, s.DSN())
		r := rosterOn(t, pool, schema, roster.WithPublishInterval(time.Second), roster.WithMetadata(map[string]string{"zone": "a"}))
		one, other := s.stand(t, pool, s.election(t)), s.stand(t, pool, s.election(t))
		check(t, r.Add(one.Elector, other.Elector))
		one.ReportHealth(elector.HealthReport{Score: 0.9, Why: "warm"})
		one.run(t, nil).elected(t)
		other.run(t, nil).elected(t)
		reader := rosterOn(t, d.open(t, 1, s.DSN()), schema)
		ctx, stop := context.WithCancel(soon(t))
		defer stop()
		step := 0
		for l, err := range reader.Observe(ctx, one.Elector) {
			check(t, err)
			switch zone, value := l.Published.Metadata["zone"], l.Published.Metadata["value"]; {
			case step == 0 && zone == "a":
				check(t, r.SetElectionMetadata(one.Elector, map[string]string{"value": "1"}))
				step++
			case step == 1 && value == "1":
				one.ReportHealth(elector.HealthReport{Score: 0.7, Why: "busy"})
				step++
			case step == 2 && l.Published.Why == "busy":
				step++
			}
			if step == 3 {
				break
			}
		}
		if step != 3 {
			t.Errorf("step %d", step)
		}
		var first time.Time
		eventually(t, "it is published again, with the time of its report", func() bool {
			all, err := reader.Candidates(soon(t), one.Key())
			check(t, err)
			if first.IsZero() {
				first = all[0].PublishedAt
			}
			return all[0].PublishedAt.Sub(first) > time.Second && all[0].PublishedAt.Sub(all[0].CheckedAt) > time.Second
		})
		all, err := reader.Candidates(soon(t), other.Key())
		check(t, err)
		if all[0].Metadata["zone"] != "a" || all[0].Metadata["value"] != "" {
			t.Errorf("the other election has %v", all[0].Metadata)
		}
	})
}
