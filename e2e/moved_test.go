//go:build unix

package e2e_test

import (
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// sessionPooler starts a pooler in session mode. move sets it to transaction mode, and has
// a stranger take a backend as soon as its session gives it back, and keep it busy.
func (s *server) sessionPooler(t *testing.T) (b *pgcluster.Bouncer, move func(backend int)) {
	t.Helper()
	b = bounced(t, s.Cluster, pgcluster.Session, pgcluster.WithPoolSize(20))
	return b, func(backend int) {
		check(t, b.Console(soon(t), "SET pool_mode = 'transaction'"))
		t.Cleanup(func() { expect(t, b.Restart(soon(t))) }) // it keeps the name of a client on backends that it gave to it
		strangers := pq.open(t, 0, b.DSN())
		eventually(t, "a stranger has the backend", func() (met bool) {
			for range 15 { // more than the idle backends, of which PgBouncer lends the last used first
				tx, err := strangers.BeginTx(soon(t), nil)
				check(t, err)
				if met = one[int](t, tx, "SELECT pg_backend_pid()") == backend; met {
					busy := make(chan error, 1)
					go func() {
						var err error
						for err == nil {
							_, err = tx.Exec("SELECT pg_sleep(0.02)")
						}
						busy <- err
					}()
					t.Cleanup(func() { _ = tx.Rollback(); <-busy })
					break
				}
				defer tx.Rollback()
			}
			return met || !one[bool](t, s.admin, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", backend) // moved before
		})
	}
}

// seated is the backend of a deputy, which holds a seat, or of a shared session, which holds its life lock.
func (s *server) seated(t *testing.T, id string) int {
	t.Helper()
	return one[int](t, s.admin, `SELECT DISTINCT l.pid FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
		WHERE a.application_name = $1 AND l.locktype = 'advisory' AND l.objsubid = 2 AND l.mode = 'ExclusiveLock' AND l.granted`, id)
}

func TestALockIsFreeSoonAfterAPoolerHasMovedItsSession(t *testing.T) {
	t.Parallel()
	ends := map[string]func(t *testing.T, term *elector.Term){
		"lost":     func(*testing.T, *elector.Term) {},
		"resigned": func(t *testing.T, term *elector.Term) { wraps(t, term.Resign(soon(t)), elector.ErrSessionPooled) },
	}
	for name, campaign := range map[string]func(t *testing.T, s *server, b *pgcluster.Bouncer, d drivers, election string) *elector.Term{
		"own": func(t *testing.T, s *server, b *pgcluster.Bouncer, d drivers, election string) *elector.Term {
			term, err := s.through(t, d.open(t, 0, b.DSN(waysToAsk["pgx exec"]...)), election, elector.WithScope(elector.SessionScope)).Campaign(soon(t))
			check(t, err)
			return term
		},
		"shared": func(t *testing.T, s *server, b *pgcluster.Bouncer, d drivers, election string) *elector.Term {
			term, err := s.share(t, d.open(t, 0, b.DSN(waysToAsk["pgx exec"]...))).join(t, []string{election}).all[0].Campaign(soon(t))
			check(t, err)
			return term
		},
	} {
		for how, end := range ends {
			t.Run(name+" "+how, func(t *testing.T) {
				overEach(t, func(t *testing.T, d drivers) {
					s := direct(t)
					b, move := s.sessionPooler(t)
					election := s.election(t)
					term := campaign(t, s, b, d, election)
					backend := s.holders(t, elector.KeyFromName(election))[0]
					other := s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil)
					other.follows(t)
					move(backend)
					end(t, term)
					<-term.Context().Done()
					other.elected(t)
				})
			})
		}
	}
}

func TestASeatIsFreeSoonAfterAPoolerHasMovedItsDeputy(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		b, move := s.sessionPooler(t)
		election := s.election(t)
		s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil).elected(t)
		c := s.through(t, d.open(t, 0, b.DSN(waysToAsk["pgx exec"]...)), election, elector.WithScope(elector.SessionScope), waiting).run(t, nil)
		wait(t, c, func(e hooks.Campaign) bool { return e.Deputy })
		move(s.seated(t, c.CandidateID()))
		wait(t, c, func(f hooks.Failure) bool { return f.Op == hooks.OpCampaign })
		c.end(t)
		other := s.stand(t, d.open(t, 0, s.DSN()), election, waiting).run(t, nil)
		wait(t, other, func(e hooks.Campaign) bool { return e.Deputy })
	})
}

// A batch of a shared session is granted its locks on a stranger's backend.
func TestASharedSessionLeadsOnNoOtherBackendThanItsOwn(t *testing.T) {
	inSessionScope(t, "a shared session needs it")
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		b, move := s.sessionPooler(t)
		election := s.election(t)
		term, err := s.stand(t, d.open(t, 0, s.DSN()), election).Campaign(soon(t))
		check(t, err)
		g := s.share(t, d.open(t, 0, b.DSN(waysToAsk["pgx exec"]...)), elector.WithLease(10*time.Second), elector.WithHeartbeatInterval(3*time.Second)).
			join(t, []string{election}).run(t, nil)
		eventually(t, "it follows", func() bool { return len(g.rec.Campaigns()) > 0 })
		move(s.seated(t, g.CandidateID()))
		expect(t, term.Resign(soon(t)))
		eventually(t, "an attempt fails", func() bool { return len(g.rec.Failures()) > 0 })
		wraps(t, g.rec.Failures()[0].Err, elector.ErrSessionPooled)
		if n := len(g.rec.Elected()); n > 0 {
			t.Errorf("elected %d times on another backend", n)
		}
		g.close(t)
		s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil).elected(t)
	})
}
