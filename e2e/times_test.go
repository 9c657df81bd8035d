//go:build unix

package e2e_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// An application sets a DateStyle on the connections of the pool, as each may. lib/pq
// reads the text of a timestamp, and knows ISO alone.
func TestTimesAreReadUnderEveryDateStyle(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema, election := s.schema(t), s.election(t)
		r := rosterOn(t, d.open(t, 0, s.DSN()), schema)
		c := s.stand(t, d.open(t, 0, s.DSN()), election, elector.WithHooks(r)).run(t, nil)
		c.elected(t)
		s.parks(t, s.stand(t, d.open(t, 1, s.DSN()), election, elector.WithStandby(elector.Wait)).run(t, nil))
		written(t, r)
		eventually(t, "the term is recorded", func() bool { return len(terms(t, r, c.Key())) == 1 })
		for i, style := range []string{"German, DMY", "SQL, MDY", "Postgres, YMD"} {
			recent := func(what string, at time.Time) {
				t.Helper()
				if ago := time.Since(at); ago.Abs() > time.Hour {
					t.Errorf("%s: %s is %v", style, what, at)
				}
			}
			pool := d.open(t, i, s.DSN()) // one connection, which is used again and again
			_, err := pool.Exec("SET datestyle = " + style + "; SET timezone = 'Asia/Kathmandu'")
			check(t, err)
			e, err := elector.New(pool, election)
			check(t, err)
			leader, err := e.Leader(soon(t))
			check(t, err)
			recent("the leader's session", leader.Connected)
			var sessions []elector.Candidate
			eventually(t, "the follower waits in the server", func() bool { // it does not between two waits
				sessions, err = e.Candidates(soon(t))
				check(t, err)
				return len(sessions) == 2
			})
			for _, c := range sessions {
				recent("a session", c.Connected)
			}
			r := rosterOn(t, pool, schema)
			published, err := r.Candidates(soon(t), c.Key())
			check(t, err)
			recorded := terms(t, r, c.Key())
			if len(published) != 1 || len(recorded) != 1 {
				t.Fatalf("%s: got %+v, %+v", style, published, recorded)
			}
			recent("its candidacy", published[0].Since)
			recent("its publication", published[0].PublishedAt)
			recent("its election", recorded[0].ElectedAt)
		}
	})
}

// One row that somebody has written by hand hides no other row.
func TestInfiniteTimesInARosterHideNothing(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema := s.schema(t)
		r := rosterOn(t, d.open(t, 0, s.DSN()), schema)
		for _, at := range []string{"infinity", "-infinity", "294276-12-31", "4713-01-01 BC", "now"} {
			_, err := s.admin.Exec(`INSERT INTO `+quoted(schema)+`.roster_candidates VALUES (7, $1::text, 'any', '', '{}', $2::timestamptz, NULL, $2::timestamptz, $2::timestamptz, $2::timestamptz)`, at, at)
			check(t, err)
		}
		for token, at := range []string{"now", "-infinity", "infinity", "4713-01-01 BC", "294276-12-31"} {
			_, err := s.admin.Exec(`INSERT INTO `+quoted(schema)+`.roster_terms VALUES (7, $1, 'any', $2::text, $3::timestamptz, $3::timestamptz, 'shutdown', '')`, token, at, at)
			check(t, err)
		}
		candidates, err := r.Candidates(soon(t))
		check(t, err)
		history, err := r.Terms(soon(t), 10)
		check(t, err)
		if len(candidates) != 5 || len(history) != 5 {
			t.Errorf("got %d candidates and %d terms", len(candidates), len(history))
		}
		// What cannot be written as JSON would hide the others on a page.
		for _, all := range []any{candidates, history} {
			if _, err := json.Marshal(all); err != nil {
				t.Error(err)
			}
		}
	})
}
