//go:build unix

package e2e_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/roster"
)

// Whatever happens to the roster, the term goes on; and when it is back, all that
// happened meanwhile is told.
func TestLosingTheRosterCostsNoTerm(t *testing.T) {
	t.Parallel()
	for name, loss := range map[string]struct {
		lose, restore string
		sentinel      error
	}{
		"dropped": {`DROP SCHEMA $schema CASCADE`, "", roster.ErrNotMigrated},
		"revoked": {`REVOKE ALL ON ALL TABLES IN SCHEMA $schema FROM $role`, `GRANT ALL ON ALL TABLES IN SCHEMA $schema TO $role`, roster.ErrNoPrivilege},
		"changed": {`ALTER TABLE $schema.roster_terms RENAME token TO word; ALTER TABLE $schema.roster_candidates RENAME health TO wealth`,
			`ALTER TABLE $schema.roster_terms RENAME word TO token; ALTER TABLE $schema.roster_candidates RENAME wealth TO health`, roster.ErrNotMigrated},
	} {
		t.Run(name, func(t *testing.T) {
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

func TestALockedRosterCostsNoTermAndDelaysNoResignation(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		l := loseRoster(t, d)
		tx, err := l.s.admin.BeginTx(soon(t), nil)
		check(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.Exec(l.format(`LOCK TABLE $schema.roster_candidates, $schema.roster_terms IN ACCESS EXCLUSIVE MODE`))
		check(t, err)
		l.survives(t, context.DeadlineExceeded)
		resigned := termOf(t, l.leader)
		expect(t, resigned.Resign(soon(t)))
		after := l.leader.rec.Cursor()
		next(t, after, func(e hooks.Elected) bool { return e.Token > resigned.Token() }) // while the tables are locked
		check(t, tx.Rollback())
		l.recovers(t)
	})
}

// lostRoster is a leader, with a role of its own and a roster that it is about to lose.
type lostRoster struct {
	s            *server
	leader       *candidate
	schema, role string
	roster       *roster.Roster // the leader's
	migrate      *roster.Roster // the administrator's
	told         atomic.Pointer[error]
}

func loseRoster(t *testing.T, d drivers) *lostRoster {
	t.Helper()
	s := onShared(t)
	l := &lostRoster{s: s, schema: s.schema(t), role: s.role(t, nil)}
	l.migrate = rosterOn(t, s.admin, l.schema)
	l.exec(t, `GRANT USAGE ON SCHEMA $schema TO $role; GRANT ALL ON ALL TABLES IN SCHEMA $schema TO $role`)
	pool := d.open(t, 0, s.DSN(pgcluster.ForRole(l.role)))
	pool.SetMaxOpenConns(2) // what the roster borrows, the elector has not
	l.roster = rosterOn(t, pool, l.schema, roster.WithPublishInterval(time.Second),
		roster.WithOnError(func(err error) { l.told.Store(&err) }))
	l.leader = s.stand(t, pool, s.election(t), elector.WithHooks(l.roster)).run(t, nil)
	l.leader.elected(t)
	eventually(t, "its term is recorded", func() bool { return l.roster.Stats().Writes > 0 && l.roster.Stats().Waiting == 0 })
	return l
}

// survives waits until writes have failed, as OnError is told, and heartbeats gone on.
func (l *lostRoster) survives(t *testing.T, sentinel error) {
	t.Helper()
	failures := l.roster.Stats().Failures
	eventually(t, "writes fail", func() bool { return l.roster.Stats().Failures >= failures+2 })
	wraps(t, *l.told.Load(), sentinel)
	wraps(t, l.roster.Stats().Err, sentinel)
	l.leader.survives(t, 1, lease)
	beat := l.leader.after()
	next[hooks.Heartbeat](t, beat, nil)
	if !l.leader.IsLeader() {
		t.Error("it leads no more")
	}
}

// recovers waits until all is written that happened meanwhile.
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
	if s := l.roster.Stats(); s.Dropped != 0 {
		t.Errorf("%d terms were dropped", s.Dropped)
	}
	for _, f := range l.leader.rec.Failures() {
		t.Errorf("the elector failed to %s: %v", f.Op, f.Err)
	}
}

// format puts the schema and the role into a statement.
func (l *lostRoster) format(statement string) string {
	return strings.NewReplacer("$schema", quoted(l.schema), "$role", quoted(l.role)).Replace(statement)
}

func (l *lostRoster) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := l.s.admin.Exec(l.format(statement))
	check(t, err)
}
