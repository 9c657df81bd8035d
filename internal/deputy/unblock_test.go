package deputy_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/deputy"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
)

// After an attempt that may have waited too long at the barrier, what is overdue is ended once, before the next.
func TestWhatBlocksTheNextTermIsEndedBeforeTheNextAttempt(t *testing.T) {
	prepared := drivertest.Rows{{int64(0), false, "x"}}
	for name, c := range map[string]struct {
		confirm  error // of the first attempt
		overdue  drivertest.Rows
		err      error // of the question what is overdue
		asked    int   // times, before the two attempts that follow
		tried    bool
		reported bool
	}{
		"ended, or none":     {confirm: drivertest.State("57014"), asked: 1, tried: true},
		"a prepared one":     {confirm: drivertest.State("57014"), overdue: prepared, asked: 2},
		"it may not be done": {confirm: drivertest.State("57014"), err: drivertest.State("42501"), asked: 1, tried: true, reported: true},
		"it did not wait":    {confirm: drivertest.State("53200"), tried: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				errs := map[string]error{"Confirm": c.confirm, "EndOverdue": c.err}
				driver := drivertest.ByName(map[string]drivertest.Rows{"TryLock": {{"granted", false, int64(1), int64(0), ""}}, "EndOverdue": c.overdue}, errs)
				pool := driver.Open()
				defer pool.Close()
				d := deputy.New(deputy.Config{CandidateID: "one", Key: key, Inside: func() bool { return false }})
				var reports []error
				from := election.NewSource(pool, election.SessionConfig{CandidateID: "one", Statements: d.Statements, Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second},
					Report: func(doing string, err error) {
						if doing == "report" {
							reports = append(reports, err)
						}
					}})
				e := election.New(from, election.Config{Key: key, Acquirer: d, Observer: quiet{}})
				if a := d.Acquire(context.Background(), e); !errors.Is(a.Err, election.ErrAtBarrier) || !errors.Is(a.Err, c.confirm) {
					t.Fatalf("got %+v", a)
				}
				errs["TryLock"] = drivertest.State("57P03")
				asked := 0
				for range 2 {
					driver.Calls()
					a := d.Acquire(context.Background(), e)
					calls := driver.Calls()
					if slices.Contains(calls, "query EndOverdue") {
						asked++
					}
					if tried := slices.Contains(calls, "query TryLock"); tried != c.tried || a.Err == nil || errors.Is(a.Err, errs["TryLock"]) != c.tried {
						t.Errorf("tried %t: %v", tried, a.Err)
					}
					if !c.tried && !strings.Contains(a.Err.Error(), "ROLLBACK PREPARED") {
						t.Errorf("it does not say what to do: %v", a.Err)
					}
				}
				if asked != c.asked || len(reports) > 0 != c.reported || c.reported && !errors.Is(reports[0], c.err) {
					t.Errorf("asked %d times, want %d; reported %v", asked, c.asked, reports)
				}
			})
		})
	}
}
