package pooled

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// Strangers would keep the lock on a backend that the session has left.
func TestOnlyTheBackendsOfASessionThatWasMovedAreEvicted(t *testing.T) {
	for name, c := range map[string]struct {
		tried, confirmed, beaten int64 // the backend that answers
		beat                     error
		want                     []any // the backends that are evicted
	}{
		"moved in the try":            {9, 9, 9, nil, nil}, // the first answer names the session's own
		"moved before it was elected": {1, 9, 9, nil, []any{int64(1)}},
		"moved while it leads":        {1, 1, 9, nil, []any{int64(1)}},
		"lost":                        {1, 1, 1, drivertest.State("57P01"), nil},
		"closed":                      {1, 1, 1, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var evicted []any
				d := drivertest.ByName(map[string]drivertest.Rows{
					"TryElection": {{"granted", c.tried, int64(0), ""}}, "ConfirmElection": {{true, c.confirmed, false, int64(1<<48 | 745), "0"}},
					"Ping": {{c.beaten, false, false}}, "EvictHolder": {{true}},
				}, map[string]error{"Ping": c.beat})
				answer := d.Query
				d.Query = func(ctx context.Context, statement string, args []any) (drivertest.Rows, error) {
					if drivertest.NameOf(statement) == "EvictHolder" {
						if !slices.Contains(args, any(int64(7))) || !slices.Contains(args, any(int64(8))) {
							t.Errorf("evicted the holder of %v", args)
						}
						evicted = append(evicted, args[slices.IndexFunc(args, func(a any) bool { return a == int64(1) || a == int64(9) })])
					}
					return answer(ctx, statement, args)
				}
				pool := d.Open()
				defer pool.Close()
				from := election.NewSource(pool, election.SessionConfig{Lease: lease.Lease{Length: time.Minute, Heartbeat: 10 * time.Second, Drain: time.Second},
					Parts: []election.Part{Evictor{Locks: func(*election.Session) (key, pair int64, ok bool) { return 7, 8, true }}}})
				a := election.New(from, election.Config{Key: 7}).Attempt(t.Context())
				if moved := errors.Is(a.Err, pgerr.ErrSessionPooled); moved != (c.tried != c.confirmed) {
					t.Fatalf("got %+v", a)
				}
				if a.Lock != nil {
					time.Sleep(15 * time.Second)
					a.Lock.Session().Close()
				}
				if !slices.Equal(evicted, c.want) {
					t.Errorf("evicted %v, want %v", evicted, c.want)
				}
			})
		})
	}
}

// A try that another backend has granted leaves our lock there.
func TestABackendThatWasGrantedOurLockIsEvicted(t *testing.T) {
	for _, c := range []struct {
		outcome string
		want    []any
	}{{"granted", []any{int64(9), int64(1)}}, {"busy", []any{int64(1)}}} {
		synctest.Test(t, func(t *testing.T) {
			answers := map[string]drivertest.Rows{"TryElection": {{"busy", int64(1), int64(0), ""}}, "EvictHolder": {{true}}}
			d := drivertest.ByName(answers, nil)
			var evicted []any
			answer := d.Query
			d.Query = func(ctx context.Context, statement string, args []any) (drivertest.Rows, error) {
				if drivertest.NameOf(statement) == "EvictHolder" {
					evicted = append(evicted, args[slices.IndexFunc(args, func(a any) bool { return a == int64(1) || a == int64(9) })])
				}
				return answer(ctx, statement, args)
			}
			pool := d.Open()
			defer pool.Close()
			s, err := election.NewSource(pool, election.SessionConfig{Lease: lease.Lease{Length: time.Minute, Heartbeat: 10 * time.Second},
				Parts: []election.Part{Evictor{Locks: func(*election.Session) (key, pair int64, ok bool) { return 7, 8, true }}}}).Lend(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := s.Try(t.Context(), election.Want{Key: 7}); err != nil {
				t.Fatal(err)
			}
			answers["TryElection"] = drivertest.Rows{{c.outcome, int64(9), int64(0), ""}}
			_, _, err = s.Try(t.Context(), election.Want{Key: 7})
			s.Fail(err)
			if !errors.Is(err, pgerr.ErrSessionPooled) || !slices.Equal(evicted, c.want) {
				t.Errorf("evicted %v, want %v: %v", evicted, c.want, err)
			}
		})
	}
}
