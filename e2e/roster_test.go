//go:build unix

package e2e_test

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/roster"
)

// rosterHooks returns the hooks of a candidate's process that writes a roster.
func (s settings) rosterHooks(pool *sql.DB) (all []hooks.Hook, closeRoster func(), err error) {
	if s.Roster == "" {
		return nil, func() {}, nil
	}
	r, err := roster.New(pool, roster.WithSchema(s.Roster), roster.WithPublishInterval(cmp.Or(s.Publish, time.Second)))
	return []hooks.Hook{r}, func() { _ = r.Close(context.Background()) }, err
}

// schema returns the name of a schema that is dropped at the end of the test.
func (s *server) schema(t *testing.T) string {
	t.Helper()
	name := unique("roster")
	t.Cleanup(func() {
		_, err := s.admin.Exec(`DROP SCHEMA IF EXISTS "` + name + `" CASCADE`)
		expect(t, err)
	})
	return name
}

// rosterOn makes a roster and its tables. The roster is closed at the end of the test.
func rosterOn(t *testing.T, pool *sql.DB, schema string, opts ...roster.Option) *roster.Roster {
	t.Helper()
	r, err := roster.New(pool, append([]roster.Option{roster.WithSchema(schema)}, opts...)...)
	check(t, err)
	check(t, r.Migrate(soon(t)))
	t.Cleanup(func() { _ = r.Close(soon(t)) })
	return r
}

// states returns the states of the candidates, by id.
func states(t *testing.T, r *roster.Roster, key int64) map[string]roster.State {
	t.Helper()
	all, err := r.Candidates(soon(t), key)
	check(t, err)
	found := map[string]roster.State{}
	for _, c := range all {
		found[c.CandidateID] = c.State
	}
	return found
}

// terms returns the terms of an election, newest first.
func terms(t *testing.T, r *roster.Roster, key int64) []roster.Term {
	t.Helper()
	all, err := r.Terms(soon(t), 100, key)
	check(t, err)
	return all
}

func TestARosterListsCandidatesAndTerms(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election, schema := s.election(t), s.schema(t)
		pools := []*sql.DB{d.open(t, 0, s.DSN()), d.open(t, 1, s.DSN())}
		first := rosterOn(t, pools[0], schema, roster.WithVersion("1.4.2"),
			roster.WithMetadata(map[string]string{"zone": "a", "<b>": `"quoted"`}))
		second := rosterOn(t, pools[1], schema, roster.WithVersion(""))
		leader := s.stand(t, pools[0], election,
			elector.WithHealth(func(context.Context) elector.HealthReport { return elector.HealthReport{Score: 0.75} }, elector.HealthPolicy{}))
		check(t, first.Add(leader.Elector))
		token := leader.run(t, nil).elected(t).Token
		follower := s.stand(t, pools[1], election, elector.WithHooks(second)).run(t, nil)
		follower.follows(t)

		var all []roster.Candidate
		eventually(t, "both are published", func() bool {
			var err error
			all, err = second.Candidates(soon(t), leader.Key())
			check(t, err)
			return len(all) == 2 && (all[1].Deputy || !throughPooler) // there it leaves its seat for a moment
		})
		if c := all[0]; c.CandidateID != leader.CandidateID() || !c.Leading || c.Deputy || c.State != roster.Live || c.Election != election || c.Version != "1.4.2" ||
			c.Health == nil || *c.Health != 0.75 || !maps.Equal(c.Metadata, map[string]string{"zone": "a", "<b>": `"quoted"`}) || c.JoinedAt.IsZero() {
			t.Errorf("the leader is %+v", c)
		}
		if c := all[1]; c.CandidateID != follower.CandidateID() || c.Leading || !c.Deputy || c.State != roster.Live || c.Version != "" || c.Health != nil || len(c.Metadata) != 0 {
			t.Errorf("the follower is %+v", c)
		}
		eventually(t, "the term is recorded", func() bool { return len(terms(t, second, leader.Key())) == 1 })
		if term := terms(t, second, leader.Key())[0]; term.Token != token || term.CandidateID != leader.CandidateID() || term.Reason != "" || !term.EndedAt.IsZero() {
			t.Errorf("the current term is %+v", term)
		}

		leader.end(t)
		check(t, first.Close(soon(t)))
		next := follower.elected(t).Token
		all, err := second.Candidates(soon(t), leader.Key())
		check(t, err)
		if c := all[0]; c.CandidateID != follower.CandidateID() || !c.Leading || c.Deputy {
			t.Errorf("the new leader is %+v", c)
		}
		eventually(t, "the next term is recorded", func() bool { return len(terms(t, first, leader.Key())) == 2 })
		history := terms(t, first, leader.Key()) // a closed roster can be read
		if term := history[0]; term.Token != next || term.Reason != "" {
			t.Errorf("the next term is %+v", term)
		}
		if term := history[1]; term.Token != token || term.Reason != string(hooks.Shutdown) || term.Err == "" ||
			term.EndedAt.Before(term.ElectedAt) || term.EndedAt.After(history[0].ElectedAt) {
			t.Errorf("the term that has ended is %+v", term)
		}
		if state := states(t, first, leader.Key())[leader.CandidateID()]; state != roster.Left {
			t.Errorf("after Close the candidate is %s, want left", state)
		}
	})
}

func TestTheTermOfAKilledProcessIsLostAndEndsWhenTheNextBegins(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	schema := s.schema(t)
	r := rosterOn(t, pgx.open(t, 0, s.DSN()), schema)
	f := s.launch(t, mixed, 2, func(_ int, s *settings) { s.Roster = schema })
	key := elector.KeyFromName(f.election)
	killed := f.leader(t, 0)
	eventually(t, "the term is recorded, and the candidate published", func() bool {
		return len(terms(t, r, key)) == 1 && states(t, r, key)[killed.ID] == roster.Live
	})
	f.kill(t, killed.ID)
	next := f.leader(t, killed.Token)
	eventually(t, "the next term is recorded", func() bool { return len(terms(t, r, key)) == 2 })
	history := terms(t, r, key)
	if old := history[1]; old.Token != killed.Token || old.Reason != roster.Lost || !old.EndedAt.Equal(history[0].ElectedAt) {
		t.Errorf("the killed leader's term is %+v, and the next %+v", old, history[0])
	}
	if history[0].Token != next.Token || history[0].Reason != "" {
		t.Errorf("the next term is %+v", history[0])
	}

	eventually(t, "the killed candidate is silent, and the next is live", func() bool {
		all := states(t, r, key)
		return all[killed.ID] == roster.Silent && all[next.ID] == roster.Live
	})

	f.kill(t, next.ID)
	eventually(t, "the last term is lost", func() bool { return terms(t, r, key)[0].Reason == roster.Lost })
	if last := terms(t, r, key)[0]; !last.EndedAt.IsZero() {
		t.Errorf("the end is unknown, but the roster says %v", last.EndedAt)
	}
}

func TestACandidateThatLeftMayReturn(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		schema, pool := s.schema(t), d.open(t, 0, s.DSN())
		var since []time.Time
		for range 2 {
			r := rosterOn(t, pool, schema)
			r.OnCampaign(context.Background(), hooks.Campaign{Origin: hooks.Origin{Election: "any", Key: 1, CandidateID: "one"}, At: time.Now()})
			eventually(t, "it is live", func() bool { return states(t, r, 1)["one"] == roster.Live })
			all, err := r.Candidates(soon(t), 1)
			check(t, err)
			since = append(since, all[0].JoinedAt)
			check(t, r.Close(soon(t)))
			if state := states(t, r, 1)["one"]; state != roster.Left {
				t.Errorf("after Close it is %s, want left", state)
			}
		}
		if !since[1].After(since[0]) {
			t.Errorf("Since did not change: %v", since)
		}
	})
}

// A failure of the roster does not end the term. When the roster works again, it records
// everything that happened meanwhile.
func TestAFailureOfTheRosterEndsNoTerm(t *testing.T) {
	t.Parallel()
	for name, loss := range map[string]struct {
		lose, restore string
		sentinel      error
	}{
		"dropped":            {`DROP SCHEMA $schema CASCADE`, "", roster.ErrNotMigrated},
		"row level security": {`ALTER TABLE $schema.roster_candidates ENABLE ROW LEVEL SECURITY`, `ALTER TABLE $schema.roster_candidates DISABLE ROW LEVEL SECURITY`, roster.ErrNoPrivilege},
		"revoked":            {`REVOKE ALL ON ALL TABLES IN SCHEMA $schema FROM $role`, `GRANT ALL ON ALL TABLES IN SCHEMA $schema TO $role`, roster.ErrNoPrivilege},
		"changed": {`ALTER TABLE $schema.roster_terms RENAME token TO word; ALTER TABLE $schema.roster_candidates RENAME health TO wealth`,
			`ALTER TABLE $schema.roster_terms RENAME word TO token; ALTER TABLE $schema.roster_candidates RENAME wealth TO health`, roster.ErrNotMigrated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				l := loseRoster(t, d)
				l.exec(t, loss.lose)
				l.survives(t, loss.sentinel)
				if loss.restore == "" {
					check(t, l.migrate.Migrate(soon(t)))
					l.exec(t, `GRANT USAGE ON SCHEMA $schema TO $role; GRANT ALL ON ALL TABLES IN SCHEMA $schema TO $role`)
				} else {
					l.exec(t, loss.restore)
				}
				l.recovers(t)
			})
		})
	}
}

// lostRoster is a leader with its own role and a roster that is about to fail.
type lostRoster struct {
	s            *server
	leader       *candidate
	schema, role string
	roster       *roster.Roster // the leader's
	migrate      *roster.Roster // the administrator's
	reported     atomic.Pointer[error]

	reports, recovered atomic.Int32 // how often
}

func loseRoster(t *testing.T, d drivers) *lostRoster {
	t.Helper()
	s := onShared(t)
	l := &lostRoster{s: s, schema: s.schema(t), role: s.role(t, nil)}
	l.migrate = rosterOn(t, s.admin, l.schema)
	l.exec(t, `GRANT USAGE ON SCHEMA $schema TO $role; GRANT ALL ON ALL TABLES IN SCHEMA $schema TO $role`)
	pool := d.open(t, 0, s.DSN(pgcluster.ForRole(l.role)))
	pool.SetMaxOpenConns(2) // the roster's connection is missing for the elector
	l.roster = rosterOn(t, pool, l.schema, roster.WithPublishInterval(time.Second),
		roster.WithOnError(func(err error) { l.reports.Add(1); l.reported.Store(&err) }),
		roster.WithOnRecovered(func(time.Duration) { l.recovered.Add(1) }))
	l.leader = s.stand(t, pool, s.election(t), elector.WithHooks(l.roster)).run(t, nil)
	l.leader.elected(t)
	eventually(t, "its term is recorded", func() bool { return l.roster.Stats().Writes > 0 && l.roster.Stats().Waiting == 0 })
	return l
}

// survives waits until writes have failed and OnError was called, and checks that
// heartbeats go on.
func (l *lostRoster) survives(t *testing.T, sentinel error) {
	t.Helper()
	failures := l.roster.Stats().Failures
	reports := l.reports.Load()
	eventually(t, "writes fail", func() bool { return l.roster.Stats().Failures >= failures+2 })
	if n := l.reports.Load(); n > reports+1 || n == 0 {
		t.Errorf("OnError was called %d times for one fault", n-reports)
	}
	wraps(t, *l.reported.Load(), sentinel)
	wraps(t, l.roster.Stats().Err, sentinel)
	l.leader.survives(t, while)
	beat := l.leader.after()
	next[hooks.Heartbeat](t, beat, nil)
	if !l.leader.IsLeader() {
		t.Error("it no longer leads")
	}
}

// recovers waits until everything that happened meanwhile is recorded.
func (l *lostRoster) recovers(t *testing.T) {
	t.Helper()
	cursor := l.leader.after()
	term, leading := l.leader.Term()
	if !leading {
		t.Fatal("it does not lead")
	}
	expect(t, term.Resign(soon(t)))
	again := nextElected(t, cursor)
	eventually(t, "what happened meanwhile is recorded", func() bool {
		all, err := l.migrate.Terms(soon(t), 100, l.leader.Key())
		return err == nil && len(all) >= 2 && all[0].Token == again.Token && all[0].Reason == "" &&
			all[1].Token == term.Token() && all[1].Reason == string(hooks.Resigned)
	})
	eventually(t, "the candidate is published", func() bool { return states(t, l.migrate, l.leader.Key())[l.leader.CandidateID()] == roster.Live })
	eventually(t, "the last write has succeeded", func() bool { return l.roster.Stats().Err == nil })
	eventually(t, "it is told that this is over", func() bool { return l.recovered.Load() == l.reports.Load() })
	if s := l.roster.Stats(); s.Dropped != 0 {
		t.Errorf("%d terms were dropped", s.Dropped)
	}
	for _, f := range l.leader.rec.Failures() {
		t.Errorf("the elector failed to %s: %v", f.Op, f.Err)
	}
}

// format replaces $schema and $role in a statement.
func (l *lostRoster) format(statement string) string {
	return strings.NewReplacer("$schema", quoted(l.schema), "$role", quoted(l.role)).Replace(statement)
}

func (l *lostRoster) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := l.s.admin.Exec(l.format(statement))
	check(t, err)
}
