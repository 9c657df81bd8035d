//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/lockkey"
)

// claims are values of this library's settings, which anybody may set for a session.
var claims = map[string]string{"pgelector.transaction": "open", "pgelector.key": "1", "pgelector.role": "watcher", "pgelector.wait": "1"}

// claim sets them for the rest of the session on so many backends of a pooler at once.
func claim(t *testing.T, pool *sql.DB, backends int) {
	t.Helper()
	var all []*sql.Tx
	for range backends {
		tx, err := pool.BeginTx(soon(t), nil)
		check(t, err)
		for name, value := range claims {
			_, err = tx.Exec(fmt.Sprintf("SET %s = '%s'", name, value))
			check(t, err)
		}
		all = append(all, tx)
	}
	for _, tx := range all {
		check(t, tx.Commit())
	}
}

// A pooler in transaction mode resets nothing: another client's settings are still there.
func TestSettingsOnEveryBackendOfAPoolerSkipNeitherBarrierNorToken(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		const size = 8
		s := direct(t)
		b := bounced(t, s.Cluster, pgcluster.Transaction, pgcluster.WithPoolSize(size))
		election := s.election(t)
		open := func() *sql.DB { return d.open(t, 0, b.DSN(waysToAsk["pgx exec"]...)) }
		leader := s.through(t, open(), election).run(t, nil)
		first := leader.elected(t)
		follower := s.through(t, open(), election).run(t, nil)
		follower.follows(t)
		claim(t, pq.open(t, 0, b.DSN()), size-1) // the leader keeps one

		fenced, err := s.admin.BeginTx(soon(t), nil)
		check(t, err)
		defer fenced.Rollback()
		key := elector.KeyFromName(election)
		high, low := lockkey.Halves(key)
		entered, err := db.New(fenced).EnterTerm(soon(t), db.EnterTermParams{Settings: "[]", GuardHigh: high, GuardLow: low, Key: key})
		check(t, err)
		if entered.Outcome != "ended" { // which shares the guard
			t.Fatalf("entered a term of nobody: %s", entered.Outcome)
		}
		leader.end(t)
		eventually(t, "the next leader waits at the barrier", func() bool {
			return len(s.locksOf(t, key, "objsubid = 2 AND mode = 'ExclusiveLock' AND NOT granted")) > 0 || len(follower.rec.Elected()) > 0
		})
		if early := follower.rec.Elected(); len(early) > 0 {
			t.Errorf("elected beside a fenced transaction of the last term, with token %d", early[0].Token)
		}
		check(t, fenced.Rollback())
		second := follower.elected(t)
		if second.Token <= first.Token {
			t.Errorf("token %d does not rise above %d", second.Token, first.Token)
		}
		follower.end(t)

		claim(t, pq.open(t, 0, b.DSN()), size)
		leadInTurn(t, func() *candidate { return s.through(t, open(), election) })
		leadInTurn(t, func() *candidate { return s.through(t, open(), election, elector.WithTakeover(elector.Wait)) })
	})
}

// leadInTurn checks that a new candidate is elected, and after it another that has followed.
func leadInTurn(t *testing.T, stand func() *candidate) {
	t.Helper()
	leader := stand().run(t, nil)
	first := leader.elected(t)
	follower := stand().run(t, nil)
	follower.follows(t)
	leader.end(t)
	if second := follower.elected(t); first.Token < 1<<48 || second.Token <= first.Token {
		t.Errorf("tokens %d and %d", first.Token, second.Token)
	}
	follower.end(t)
}

// A superuser may set them for a role or a database.
func TestSettingsOfARoleOrDatabaseKeepNobodyFromBeingElected(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		ofDatabase := s.database(t)
		for name, value := range claims {
			database := one[string](t, d.open(t, 0, ofDatabase), "SELECT current_database()")
			_, err := s.admin.Exec(fmt.Sprintf(`ALTER DATABASE "%s" SET %s = '%s'`, database, name, value))
			check(t, err)
		}
		ofRole := s.DSN(pgcluster.ForRole(s.role(t, claims)))
		for name, c := range map[string]struct {
			dsn string
			opt elector.Option
		}{
			"a deputy": {ofDatabase, elector.WithTakeover(elector.Deputy)},
			"waiting":  {ofRole, elector.WithTakeover(elector.Wait)},
			"inside":   {ofRole, elector.WithScope(elector.TransactionScope)},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				election := unique(t.Name())
				leadInTurn(t, func() *candidate {
					c := s.stand(t, d.open(t, 0, c.dsn), election, c.opt)
					c.shared = true
					return c
				})
			})
		}
		t.Run("shared session", func(t *testing.T) {
			t.Parallel()
			shared, err := elector.NewSession(d.open(t, 0, ofRole), elector.WithLease(lease))
			check(t, err)
			defer shared.Close(context.Background())
			e, err := shared.Elector(unique(t.Name()))
			check(t, err)
			term, err := e.Campaign(soon(t))
			check(t, err)
			if term.Token() < 1<<48 {
				t.Errorf("token %d", term.Token())
			}
			expect(t, term.Resign(soon(t)))
		})
	})
}
