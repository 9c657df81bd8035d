//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/roster"
)

// unhurt checks that no failure is the error of an impostor. (A busy machine may cause
// other failures.)
func unhurt(t *testing.T, all ...*candidate) {
	t.Helper()
	for _, c := range all {
		for _, f := range c.rec.Failures() { // SQLSTATEs of a raised exception or of an unknown name
			if state := stateOf(f.Err); strings.HasPrefix(state, "P0") || strings.HasPrefix(state, "42") {
				t.Errorf("%s: %v", f.Op, f.Err)
			}
		}
	}
}

// handsOver uses the first candidate's term in every way, and then transfers leadership to
// the second.
func handsOver(t *testing.T, first, second *candidate) {
	t.Helper()
	first.elected(t)
	second.follows(t)
	term, leading := first.Term()
	if !leading {
		t.Fatal("the first does not lead")
	}
	expect(t, term.Verify(soon(t)))
	path := one[string](t, first.pool, "SHOW search_path")
	expect(t, term.InTx(soon(t), first.pool, nil, func(tx *sql.Tx) error {
		if inside := one[string](t, tx, "SHOW search_path"); inside != path {
			t.Errorf("the search_path of a fenced transaction is %q, want that of its pool, %q", inside, path)
		}
		return nil
	}))
	_, err := first.RunIfLeader(soon(t), func(context.Context) error { return nil })
	expect(t, err)
	if leader, err := second.Leader(soon(t)); err != nil || leader.CandidateID != first.CandidateID() {
		t.Errorf("the leader is %+v, %v", leader, err)
	}
	_, err = second.Candidates(soon(t))
	expect(t, err)
	for _, err := range second.Observe(soon(t)) {
		expect(t, err)
		break
	}
	elected := second.rec.Cursor()
	expect(t, term.TransferTo(soon(t), second.CandidateID()))
	if e := nextElected(t, elected); e.Token <= term.Token() {
		t.Errorf("token %d does not rise above %d", e.Token, term.Token())
	}
	second.end(t)
	first.elected(t)
	first.end(t)
	unhurt(t, first, second)
}

func pollsAmong(t *testing.T, w town, d drivers, dsn string) {
	election := w.election(t)
	first := w.stand(t, d.open(t, 0, dsn), election).run(t, nil)
	first.elected(t)
	second := w.stand(t, d.open(t, 1, dsn), election)
	_, elected, err := second.TryCampaign(soon(t))
	if elected || err != nil {
		t.Errorf("while another leads: %t, %v", elected, err)
	}
	handsOver(t, first, second.run(t, nil))
}

func waitsAmong(t *testing.T, w town, d drivers, dsn string) {
	election := w.election(t)
	first := w.stand(t, d.open(t, 0, dsn), election, elector.WithStandby(elector.Wait)).run(t, nil)
	first.elected(t)
	second := w.stand(t, d.open(t, 1, dsn), election, elector.WithStandby(elector.Wait)).run(t, nil)
	w.waits(t, second)
	handsOver(t, first, second)
}

// among is a scene of two candidates with the option that opts returns for each.
func among(opts func(t *testing.T, d drivers, i int, dsn string) elector.Option) func(t *testing.T, w town, d drivers, dsn string) {
	return func(t *testing.T, w town, d drivers, dsn string) {
		election := w.election(t)
		first := w.stand(t, d.open(t, 0, dsn), election, opts(t, d, 0, dsn)).run(t, nil)
		first.elected(t)
		handsOver(t, first, w.stand(t, d.open(t, 1, dsn), election, opts(t, d, 1, dsn)).run(t, nil))
	}
}

// amongWith is a scene of two candidates with that option.
func amongWith(opt elector.Option) func(t *testing.T, w town, d drivers, dsn string) {
	return among(func(*testing.T, drivers, int, string) elector.Option { return opt })
}

func notified(t *testing.T, d drivers, i int, dsn string) elector.Option {
	return elector.WithNotifier(d.notifier(t, i, dsn, nil))
}

func sharesAmong(t *testing.T, w town, d drivers, dsn string) {
	elections := []string{w.election(t), w.election(t)}
	var all [2]*candidate
	for i := range all {
		pool := d.open(t, i, dsn)
		g := w.share(t, pool)
		rec := hookstest.NewRecorder()
		g.join(t, elections[:1], elector.WithHooks(rec))
		g.join(t, elections[1:])
		all[i] = &candidate{Elector: g.all[0], rec: rec, pool: pool}
		for _, e := range g.all {
			c := all[i]
			if e != c.Elector {
				c = &candidate{Elector: e, rec: hookstest.NewRecorder(), pool: pool}
			}
			c.run(t, nil)
		}
		if i == 0 {
			all[0].elected(t)
		}
	}
	handsOver(t, all[0], all[1])
}

// seenAmong uses the roster, the dashboard, health and fence.
func seenAmong(t *testing.T, w town, d drivers, dsn string) {
	pool := d.open(t, 0, dsn)
	r := rosterOn(t, pool, w.schema(t))
	m, err := health.New(pool)
	check(t, err)
	c := w.stand(t, pool, w.election(t), elector.WithHooks(r, m)).run(t, nil)
	check(t, m.Add(c.Elector))
	c.elected(t)
	written(t, r)
	eventually(t, "the term is recorded", func() bool { return len(terms(t, r, c.Key())) == 1 })
	if states(t, r, c.Key())[c.CandidateID()] != roster.Live {
		t.Errorf("the candidates are %v", states(t, r, c.Key()))
	}
	_, err = r.CleanUp(soon(t))
	expect(t, err)
	page, err := dashboard.New(pool, dashboard.WithRoster(r))
	check(t, err)
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	if answer.Code != 200 || !strings.Contains(answer.Body.String(), c.CandidateID()) {
		t.Errorf("the page is %d: %s", answer.Code, answer.Body)
	}
	answer = httptest.NewRecorder()
	m.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	if answer.Code != 200 {
		t.Errorf("health is %d: %s", answer.Code, answer.Body)
	}
	resource := unique("lamp")
	for _, token := range []int64{1, 2} {
		tx, err := pool.BeginTx(soon(t), nil)
		check(t, err)
		expect(t, fence.Advance(soon(t), tx, resource, token))
		expect(t, tx.Commit())
	}
	c.end(t)
	expect(t, r.Close(soon(t)))
	unhurt(t, c)
}
