//go:build unix

package e2e_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// plainly records all events but those that make an attempt ask who leads.
func plainly(rec *hookstest.Recorder) elector.CommonOption {
	return elector.WithHooks(hooks.Funcs{Elected: rec.OnElected, Demoted: rec.OnDemoted, Error: rec.OnError,
		Heartbeat: rec.OnHeartbeat, Campaign: rec.OnCampaign})
}

// plain makes a candidate of a counted pool that has checked the server already.
func (s *server) plain(t *testing.T, d drivers, i int, election string, opts ...elector.Option) (*candidate, *counter) {
	t.Helper()
	pool, counter := d.openCounted(t, i, s.DSN())
	c := &candidate{rec: hookstest.NewRecorder(), pool: pool}
	e, err := elector.New(pool, election, append([]elector.Option{elector.WithLease(lease), elector.WithHeartbeatInterval(heartbeat),
		elector.WithRetryInterval(retry), plainly(c.rec)}, opts...)...)
	check(t, err)
	c.Elector = e
	t.Cleanup(func() { s.leavesNothing(t, c) })
	return c, counter
}

func same(t *testing.T, what string, got, want map[string]int) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// atMost checks that there was no more than one statement per heartbeat: one
// that was under way at first, and then one each interval.
func atMost(t *testing.T, pings int, began time.Time) {
	t.Helper()
	if most := 1 + int(time.Since(began)/heartbeat); pings > most {
		t.Errorf("%d statements, want at most %d heartbeats", pings, most)
	}
}

// closes takes from sent the BEGIN that closes the connection for good, which is sent again
// if it takes long, and the heartbeats.
func closes(t *testing.T, sent map[string]int) {
	t.Helper()
	if n := sent["BEGIN"]; n != 1 && n != 2 {
		t.Errorf("%d times BEGIN", n)
	}
	delete(sent, "BEGIN")
	delete(sent, "Ping")
}

// After a first term, or attempt, the server has been checked.
func TestStatementsAreFew(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		leader, led := s.plain(t, d, 0, election)
		follower, followed := s.plain(t, d, 1, election)

		term, err := leader.Campaign(soon(t))
		check(t, err)
		_, _, err = follower.TryCampaign(soon(t))
		check(t, err)
		expect(t, term.Resign(soon(t)))

		before := led.now()
		term, err = leader.Campaign(soon(t))
		check(t, err)
		elected := led.since(before)
		delete(elected, "Ping") // a heartbeat may have come
		same(t, "an election", elected, map[string]int{"TryLock": 1, "Confirm": 1})

		before = followed.now()
		for range 5 {
			_, _, err = follower.TryCampaign(soon(t))
			check(t, err)
		}
		same(t, "five attempts that fail", followed.since(before), map[string]int{"TryLock": 5})

		wait[hooks.Heartbeat](t, leader, nil) // so that what follows is counted from one on
		beats := leader.after()
		began := time.Now()
		before = led.now()
		for range 5 {
			next[hooks.Heartbeat](t, beats, nil)
		}
		rest := led.since(before)
		atMost(t, rest["Ping"], began)
		delete(rest, "Ping")
		same(t, "beside heartbeats", rest, map[string]int{})

		before = led.now()
		expect(t, term.Resign(soon(t)))
		resigned := led.since(before)
		closes(t, resigned)
		same(t, "a resignation", resigned, map[string]int{"Unlock": 1})
	})
}

// Preparing and planning is done before, while nobody waits for a leader: by one that was the
// deputy.
func TestAHandOverSendsWhatIsPrepared(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		first, _ := s.plain(t, d, 0, election, inServer...)
		leader, led := s.plain(t, d, 0, election, inServer...)
		follower, followed := s.plain(t, d, 1, election, inServer...)
		first.run(t, nil)
		first.elected(t)
		leader.run(t, nil)
		s.waits(t, leader)
		first.end(t)
		leader.elected(t)
		eventually(t, "the first leader has given its seat up", func() bool {
			return one[int](t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", first.CandidateID()) == 0
		})
		follower.run(t, nil)
		s.waits(t, follower)

		term := termOf(t, leader)
		beforeLed, beforeFollowed := led.now(), followed.now()
		expect(t, term.Resign(soon(t)))
		follower.elected(t)
		resigned, handedOver := led.since(beforeLed), followed.since(beforeFollowed)
		if resigned["prepared Unlock"] != 1 || resigned["Unlock"] != 0 {
			t.Errorf("a resignation: %v", resigned)
		}
		if handedOver["prepared Confirm"] == 0 {
			t.Errorf("the grant was not verified: %v", handedOver)
		}
		for _, repeated := range []string{"WaitLock", "prepared Confirm", "Ping", "OfferStands", "Identify"} { // a wait may have begun anew
			delete(handedOver, repeated)
		}
		same(t, "beside waits", handedOver, map[string]int{})
	})
}

// Every statement of a whole Run is accounted for.
func TestARunSendsNothingButItsStatements(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		c, counter := s.plain(t, d, 0, s.election(t))
		began := time.Now()
		c.run(t, func(ctx context.Context, _ *elector.Term) error {
			_, err := hookstest.WaitN[hooks.Heartbeat](ctx, c.rec, 3, nil)
			return err
		})
		expect(t, c.returned(t))
		got := counter.now()
		atMost(t, got["Ping"], began)
		closes(t, got)
		same(t, "a run", got, map[string]int{"DescribeServer": 4, "LastAsked": 3, "begin": 1, "ApplySettings": 1,
			"TryLock": 1, "Confirm": 1, "Unlock": 1})
	})
}

// quiet is a server that writes nothing by itself.
func quiet(t *testing.T) *server {
	t.Helper()
	return on(t, own(t, pgcluster.WithSetting("autovacuum", "off"), pgcluster.WithSetting("checkpoint_timeout", "1h"),
		pgcluster.WithSetting("bgwriter_lru_maxpages", "0"), pgcluster.WithSetting("wal_level", "minimal"),
		pgcluster.WithSetting("max_wal_senders", "0"), pgcluster.WithSetting("log_statement", "none")))
}

func TestNothingIsWrittenAtRest(t *testing.T) {
	t.Parallel()
	overStandbys(t, func(t *testing.T, d drivers, standby elector.Option) {
		s := quiet(t)
		election := s.election(t)
		leader := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
		leader.elected(t)
		follower := s.stand(t, d.open(t, 1, s.DSN()), election, standby).run(t, nil)
		follower.follows(t)
		attempts, beats := follower.rec.Cursor(), leader.rec.Cursor()
		rest := func() {
			for range 5 {
				next[hooks.Heartbeat](t, beats, nil)
				next[hooks.Campaign](t, attempts, nil)
			}
		}
		rest() // reading a catalog for the first time may tidy a page of it
		position := func() string { return one[string](t, s.admin, "SELECT pg_current_wal_insert_lsn()::text") }
		position()
		attempts.SkipSeen()
		beats.SkipSeen()
		before := position()
		rest()
		if after := position(); after != before {
			t.Errorf("WAL was written at rest: from %s to %s", before, after)
		}
	})
}

func TestNothingIsLogged(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := quiet(t)
		election := s.election(t)
		before, err := s.ServerLog()
		check(t, err)
		first := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
		first.elected(t)
		second := s.stand(t, d.open(t, 1, s.DSN()), election).run(t, nil)
		second.follows(t)
		first.end(t)
		second.elected(t)
		wait[hooks.Heartbeat](t, second, nil)
		second.end(t)
		eventually(t, "the sessions are gone", func() bool {
			return len(list[int](t, s.admin, "SELECT pid FROM pg_stat_activity WHERE application_name = ANY(ARRAY[$1, $2])", first.CandidateID(), second.CandidateID())) == 0
		})
		after, err := s.ServerLog()
		check(t, err)
		if after != before {
			t.Errorf("the server logged: %s", after[len(before):])
		}
	})
}
