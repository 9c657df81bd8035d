//go:build unix

package e2e_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestACandidateWithABusyPoolIsElectedOnceAConnectionIsFree(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		pool.SetMaxOpenConns(2)
		var busy []*sql.Conn
		for range 2 {
			conn, err := pool.Conn(soon(t))
			check(t, err)
			busy = append(busy, conn)
		}
		c := s.stand(t, pool, s.election(t), elector.WithLease(time.Second), elector.WithHeartbeatInterval(100*time.Millisecond)).run(t, nil)
		f := wait[hooks.Failure](t, c, nil)
		if text := f.Err.Error(); f.Permanent || !strings.Contains(text, "2 in use, at most 2") || !strings.Contains(text, "MaxOpenConns") {
			t.Errorf("the error (permanent: %t) does not name the cause: %v", f.Permanent, f.Err)
		}
		for _, conn := range busy {
			expect(t, conn.Close())
		}
		c.elected(t)
	})
}

// The leader keeps its connection while the pool's others are busy.
func TestABusyPoolEndsNoTerm(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		pool.SetMaxOpenConns(3)
		c := s.stand(t, pool, s.election(t)).run(t, nil)
		c.elected(t)
		for range 2 {
			conn, err := pool.Conn(soon(t))
			check(t, err)
			defer conn.Close()
		}
		c.survives(t, 2, lease)
	})
}

// A server without a free connection is a temporary failure.
func TestACandidateIsElectedOnceTheServerHasAFreeConnection(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		name := s.role(t, nil)
		_, err := s.admin.Exec(`ALTER ROLE "` + name + `" CONNECTION LIMIT 1`)
		check(t, err)
		c := s.stand(t, d.open(t, 0, s.DSN(pgcluster.ForRole(name))), s.election(t)).run(t, nil)
		if f := wait[hooks.Failure](t, c, nil); f.Permanent || !strings.Contains(f.Err.Error(), "too many connections") {
			t.Errorf("the error (permanent: %t) does not name the cause: %v", f.Permanent, f.Err)
		}
		_, err = s.admin.Exec(`ALTER ROLE "` + name + `" CONNECTION LIMIT 3`)
		check(t, err)
		c.elected(t)
	})
}

func TestAPoolClosedDuringACampaignIsReported(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil).elected(t)
		c := s.stand(t, d.open(t, 0, s.DSN()), election, polling).run(t, nil)
		c.poolClosed = true
		c.follows(t)
		expect(t, c.pool.Close())
		if f := wait[hooks.Failure](t, c, nil); !strings.Contains(f.Err.Error(), "database is closed") {
			t.Errorf("the error does not name the cause: %v", f.Err)
		}
		c.end(t)
	})
}

func TestALeaderWithAClosedPoolReleasesTheLock(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		c := s.stand(t, d.open(t, 0, s.DSN()), s.election(t)).run(t, nil)
		c.poolClosed = true
		c.elected(t)
		expect(t, c.pool.Close())
		c.end(t)
		if pids := s.holders(t, c.Key()); len(pids) > 0 {
			t.Errorf("backends %v hold the lock after Run returned", pids)
		}
	})
}

// All campaign at the same time.
func TestManyElectionsShareAPool(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		pool.SetMaxOpenConns(12)
		var all []*candidate
		for range 10 {
			all = append(all, s.stand(t, pool, s.election(t)).run(t, nil))
		}
		for _, c := range all {
			c.elected(t)
		}
	})
}

// Each check of the server takes two connections; the pool has fewer than two per elector.
func TestManyElectorsCheckTheServerThroughASmallPool(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		pool.SetMaxOpenConns(4)
		pool.SetMaxIdleConns(4)
		election := s.election(t)
		s.stand(t, d.open(t, 0, s.DSN()), election).run(t, nil).elected(t)
		var all []*candidate
		for range 40 {
			all = append(all, s.stand(t, pool, election, patient)) // only a deadlock takes longer
		}
		for _, c := range all {
			c.run(t, nil)
		}
		for _, c := range all {
			c.follows(t)
			if n := len(c.rec.Failures()); n > 0 {
				t.Fatalf("%d failures, the first: %v", n, c.rec.Failures()[0].Err)
			}
		}
	})
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }
