package health_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/health"
)

func TestManyProbesAtOnceSendOneStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock := newMock(t)
		m := watch(t, pool, []string{"a", "b", "c"})
		expectLeaders(mock, "a", "web-2", "b", "web-2", "c", "web-2").WillDelayFor(100 * time.Millisecond)
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() { wants(t, m, 200, `"status":"healthy"`) })
		}
		all.Wait()
	})
}

func TestACancelledProbeDoesNotAffectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock := newMock(t)
		m := watch(t, pool, orders)
		expectLeaders(mock, "orders", "web-2").WillDelayFor(100 * time.Millisecond)
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		answer := httptest.NewRecorder()
		m.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil).WithContext(short))
		if answer.Code != 503 {
			t.Errorf("got %d for a probe that went away", answer.Code)
		}
		wants(t, m, 200, "web-2")
	})
}

func TestAnAnswerForReplacedElectorsIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock := newMock(t)
		m := watch(t, pool, nil)
		candidate := func(election string) *elector.Elector {
			e, err := elector.New(pool, election, elector.WithCandidateID("web-1"))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Add(e); err != nil {
				t.Fatal(err)
			}
			return e
		}
		old := candidate("old")
		expectLeaders(mock, "old", "web-2").WillDelayFor(100 * time.Millisecond)
		expectLeaders(mock, "new", "web-3")
		var asked sync.WaitGroup
		asked.Go(func() { get(m) })
		time.Sleep(50 * time.Millisecond)
		m.Remove(old)
		candidate("new") // the number is unchanged
		time.Sleep(100 * time.Millisecond)
		wants(t, m, 200, `"leader":"web-3"`)
		asked.Wait()
	})
}

// stuck is a driver whose calls ignore their contexts, and return only after letGo.
type stuck struct {
	letGo chan struct{}
	calls atomic.Int32
}

func (s *stuck) Connect(context.Context) (driver.Conn, error) {
	s.calls.Add(1)
	<-s.letGo
	return nil, driver.ErrBadConn
}
func (s *stuck) Driver() driver.Driver { return nil }

func TestProbesDoNotWaitForAStuckDriverAndCallItRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := &stuck{letGo: make(chan struct{})}
		pool := sql.OpenDB(dead)
		defer pool.Close()
		m := watch(t, pool, orders, health.WithTimeout(2*time.Second), health.WithCache(0))
		for i := range 10 {
			start := time.Now()
			wants(t, m, 503, "the leader is unknown")
			if waited := time.Since(start); waited > 2*time.Second {
				t.Errorf("probe %d waited %v", i, waited)
			}
		}
		if n := dead.calls.Load(); n != 3 {
			t.Errorf("%d calls are stuck in the driver, want 3", n)
		}
		wants(t, m, 503, "calls of the driver have not returned")
		close(dead.letGo)
		synctest.Wait()
		wants(t, m, 503, "bad connection")
	})
}
