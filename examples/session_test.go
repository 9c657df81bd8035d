//go:build unix

package examples_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/examples"
)

// leaders says who works for each tenant.
type leaders struct {
	mu  sync.Mutex
	who map[string][]string
}

func (l *leaders) note(tenant, id string, works bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if works {
		l.who[tenant] = append(l.who[tenant], id)
	} else {
		l.who[tenant] = l.who[tenant][1:]
	}
}

func (l *leaders) are(tenants int, id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, who := range l.who {
		if len(who) == 1 && who[0] == id {
			n++
		}
	}
	return n == tenants
}

func TestEachTenantIsLedByOneProcessOnOneConnection(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logged(t)
		const tenants = 50
		l := &leaders{who: map[string][]string{}}
		start := func(id string) *examples.Tenants {
			all, err := examples.NewTenants(pool, func(ctx context.Context, tenant string, _ *elector.Term) error {
				l.note(tenant, id, true)
				defer l.note(tenant, id, false)
				<-ctx.Done()
				return nil
			}, elector.WithCandidateID(id), elector.WithRetryInterval(50*time.Millisecond))
			check(t, err)
			for i := range tenants {
				check(t, all.Add(fmt.Sprint(i)))
				check(t, all.Add(fmt.Sprint(i))) // once is enough
			}
			t.Cleanup(func() { check(t, all.Close(soon(t))) })
			return all
		}
		first := start("first")
		eventually(t, "the first leads all", func() bool { return l.are(tenants, "first") })
		start("second")
		var sessions int
		check(t, pool.QueryRow("SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&sessions))
		if sessions > 4 {
			t.Errorf("%d connections hold locks", sessions)
		}
		first.Remove("7")
		first.Remove("7")
		eventually(t, "the second leads the tenant that the first gave up", func() bool { return l.are(1, "second") })
		check(t, first.Close(soon(t)))
		eventually(t, "the second leads all", func() bool { return l.are(tenants, "second") })
	})
}

func TestTheWorkOfATenantThatFailsRunsAgain(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logged(t)
		runs := make(chan struct{}, 10)
		all, err := examples.NewTenants(pool, func(context.Context, string, *elector.Term) error {
			runs <- struct{}{}
			return errors.New("not now")
		})
		check(t, err)
		check(t, all.Add("one"))
		receive(t, "the work runs", runs)
		receive(t, "the work runs again", runs)
		check(t, all.Close(soon(t)))
		if err := all.Add("two"); !errors.Is(err, elector.ErrStopped) {
			t.Errorf("after Close, Add returned %v", err)
		}
	})
}
