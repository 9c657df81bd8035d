package dashboard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/electortest"
)

// detour is a connector that takes its first connection from the first pool, and all others
// from the second.
type detour struct {
	first, second *sql.DB
	connections   atomic.Int64
}

func (d *detour) Connect(ctx context.Context) (conn driver.Conn, err error) {
	pool := d.second
	if d.connections.Add(1) == 1 {
		pool = d.first
	}
	lent, err := pool.Conn(ctx) // it is never returned
	if err != nil {
		return nil, err
	}
	err = lent.Raw(func(raw any) error {
		conn = raw.(driver.Conn)
		return nil
	})
	if pool == d.first {
		conn = deaf{conn}
	}
	return conn, err
}

// A deaf connection ignores the end of a context.
type deaf struct{ driver.Conn }

func (d deaf) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return d.Conn.(driver.ConnBeginTx).BeginTx(context.WithoutCancel(ctx), opts)
}

func (d *detour) Driver() driver.Driver { return d.first.Driver() }

// As with lib/pq, a call on a cut connection returns only when the network is repaired. The
// page asks on another connection, and says how old its data is.
func TestAStuckDriverCallFailsThePageOnlyForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		dead, alive := server.NewProcess(), server.NewProcess()
		d := &detour{first: dead.Open(), second: alive.Open()}
		defer d.first.Close()
		defer d.second.Close()
		pool := sql.OpenDB(d)
		defer pool.Close()
		page, err := New(pool, WithElections("orders"))
		if err != nil {
			t.Fatal(err)
		}
		expect := func(when string, status int, texts ...string) {
			t.Helper()
			w := get(page, "GET", "/")
			for _, text := range texts {
				if w.Code != status || !strings.Contains(w.Body.String(), text) {
					t.Errorf("%s: got %d, want %d and %q:\n%s", when, w.Code, status, text, w.Body)
				}
			}
		}
		expect("at first", http.StatusOK, "orders")
		dead.Cut(electortest.Both)
		time.Sleep(3 * time.Minute)
		expect("when the network is cut", http.StatusServiceUnavailable, "does not answer", "shows the state of 3 min 5 s ago", "orders")
		time.Sleep(2 * lookTimeout)
		expect("while the call has not returned", http.StatusOK, "orders")
		if page.watch.stuck != 1 || d.connections.Load() != 2 {
			t.Errorf("%d looks are stuck, of %d connections", page.watch.stuck, d.connections.Load())
		}
		dead.Mend()
		synctest.Wait()
		if page.watch.stuck != 0 {
			t.Errorf("%d looks are stuck when the network is mended", page.watch.stuck)
		}
	})
}
