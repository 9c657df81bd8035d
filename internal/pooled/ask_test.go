package pooled

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/drivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pooler answers by script: each list has the errors of one kind of call, in order; then it succeeds.
type pooler struct{ begins, queries, execs []error }

func next(errs *[]error) (err error) {
	if len(*errs) > 0 {
		err, *errs = (*errs)[0], (*errs)[1:]
	}
	return err
}

func (p *pooler) driver() *drivertest.Driver {
	return &drivertest.Driver{
		Beginning: func(context.Context, driver.TxOptions) error { return next(&p.begins) },
		Exec:      func(context.Context, string) (int64, error) { return 0, next(&p.execs) },
		Query: func(context.Context, string, []any) (drivertest.Rows, error) {
			if err := next(&p.queries); err != nil {
				return nil, err
			}
			return drivertest.One("started")
		},
	}
}

func times(n int, err error) []error { return slices.Repeat([]error{err}, n) }

const started = "query ServerStart"

func TestACallOnAPoolIsMadeInATransactionOfItsOwn(t *testing.T) {
	const chain = "exec RollBackAndChain"
	refused := drivertest.State("08P01")
	for name, c := range map[string]struct {
		pooler pooler
		writes bool
		want   []string
		err    error
	}{
		"a read":                           {want: []string{"begin", started, "rollback"}},
		"a write":                          {writes: true, want: []string{"begin", chain, started, "commit"}},
		"a read that fails":                {pooler: pooler{queries: times(1, drivertest.State("57014"))}, want: []string{"begin", started, "rollback"}, err: drivertest.State("57014")},
		"a write that fails":               {writes: true, pooler: pooler{queries: times(1, drivertest.State("57014"))}, want: []string{"begin", chain, started, "rollback"}, err: drivertest.State("57014")},
		"a write that cannot begin anew":   {writes: true, pooler: pooler{execs: times(1, drivertest.State("57014"))}, want: []string{"begin", chain, "rollback"}, err: drivertest.State("57014")},
		"a failed transaction was left":    {pooler: pooler{begins: times(1, drivertest.State("25P02"))}, want: []string{"begin", "exec ROLLBACK", "begin", started, "rollback"}},
		"two were left":                    {pooler: pooler{begins: times(2, drivertest.State("25P02"))}, want: []string{"begin", "exec ROLLBACK", "begin"}, err: drivertest.State("25P02")},
		"a statement is missing":           {pooler: pooler{queries: times(1, drivertest.State("26000"))}, want: []string{"begin", started, "rollback", "begin", started, "rollback"}},
		"a statement is in the way":        {pooler: pooler{queries: times(1, drivertest.State("42P05"))}, want: []string{"begin", started, "rollback", "begin", started, "rollback"}},
		"a standby":                        {pooler: pooler{begins: times(1, drivertest.State("0A000"))}, want: []string{"begin", "begin read only", started, "rollback"}},
		"it cannot begin":                  {pooler: pooler{begins: times(1, drivertest.State("53300"))}, want: []string{"begin"}, err: drivertest.State("53300")},
		"a pooler in statement mode":       {pooler: pooler{begins: times(Refusals, refused)}, want: []string{"begin", "exec Nothing", "begin", "exec Nothing", "begin", "exec Nothing", "begin", "exec Nothing", "begin", "exec Nothing", started}},
		"it refuses less often":            {pooler: pooler{begins: times(Refusals-1, refused)}, want: []string{"begin", "exec Nothing", "begin", "exec Nothing", "begin", "exec Nothing", "begin", "exec Nothing", "begin", started, "rollback"}},
		"it refuses, and does not answer":  {pooler: pooler{begins: times(Refusals, refused), execs: times(1, drivertest.State("53300"))}, want: []string{"begin", "exec Nothing"}, err: refused},
		"a write through a pooler as that": {writes: true, pooler: pooler{begins: times(Refusals, refused)}, want: []string{"begin", "exec Nothing", "begin", "exec Nothing", "begin", "exec Nothing", "begin", "exec Nothing", "begin", "exec Nothing", started}},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.pooler.driver()
			pool := d.Open()
			defer pool.Close()
			ask := Ask[string]
			if c.writes {
				ask = Tell[string]
			}
			got, err := ask(t.Context(), pool, func(q db.DBTX) (string, error) { return db.New(q).ServerStart(t.Context()) })
			if !errors.Is(err, c.err) || c.err == nil && (err != nil || got != "started") {
				t.Errorf("got %q, %v", got, err)
			}
			if calls := d.Calls(); len(calls) == 0 || !slices.Equal(calls[1:], c.want) { // after "connect"
				t.Errorf("the pool was asked\n%q, want\n%q", calls, c.want)
			}
		})
	}
}

func TestAContextThatHasEndedAsksNothing(t *testing.T) {
	d := new(pooler).driver()
	pool := d.Open()
	defer pool.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Ask(ctx, pool, func(db.DBTX) (int, error) { return 0, nil })
	if calls := d.Calls(); !errors.Is(err, context.Canceled) || len(calls) > 0 {
		t.Errorf("asked %q: %v", calls, err)
	}
}

func TestARefusalOfAPoolerLooksLikeAConnectionThatHasEnded(t *testing.T) {
	for err, want := range map[error]bool{drivertest.State("08P01"): true, driver.ErrBadConn: true, drivertest.State("25P02"): false, context.Canceled: false, nil: false} {
		if IsRefusal(err) != want {
			t.Errorf("%v: %t", err, !want)
		}
	}
}
