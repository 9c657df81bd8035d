package inbox

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/pin"
)

// The context of a request may have no deadline, and the network may have forgotten an idle connection.
func TestARequestIsMadeOnAnotherConnectionIfOneIsSilent(t *testing.T) {
	for _, listens := range []bool{true, false} { // lib/pq does not listen to the context of BEGIN
		synctest.Test(t, func(t *testing.T) {
			answered, calls := make(chan struct{}), atomic.Int32{}
			d := drivertest.ByName(map[string]drivertest.Rows{"ApplySettings": {{int64(2)}}, "WhoAnswers": {{int64(4712), false}}}, map[string]error{})
			d.Beginning = func(ctx context.Context, _ driver.TxOptions) error {
				if calls.Add(1) > 1 {
					return nil
				}
				if !listens {
					ctx = context.Background()
				}
				select {
				case <-answered:
					return nil
				case <-ctx.Done():
					return driver.ErrBadConn
				}
			}
			pool := d.Open()
			defer pool.Close()
			idle, err := pool.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = idle.Close()
			began := time.Now()
			asking, err := Send(context.Background(), pool, 4711, 7, "", nil)
			if took := time.Since(began); err != nil || took < askingBound || took > askingBound+pin.CloseGrace {
				t.Fatalf("listens %t: %v after %v", listens, err, took)
			}
			time.Sleep(time.Hour) // the bound does not end the request
			if calls := d.Calls(); calls[len(calls)-1] == "rollback" {
				t.Errorf("listens %t: the request was withdrawn: %q", listens, calls)
			}
			close(answered)
			asking.Withdraw()
			synctest.Wait()
			if n := pool.Stats().InUse; n != 0 {
				t.Errorf("listens %t: %d connections are in use", listens, n)
			}
		})
	}
}
