package live

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A program may open a pool for each election that it tries.
func TestNothingIsKeptOfAPoolWithoutSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		pool := server.Open()
		defer pool.Close()
		left := func() (n int) {
			synctest.Wait()
			Each(pool, func(*election.Session) { n++ })
			return n
		}
		led := func(key int64) *election.Session {
			from := election.NewSource(pool, election.SessionConfig{CandidateID: "a", Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: time.Second}, Parts: []election.Part{Part{}}})
			a := election.New(from, election.Config{Key: key}).Attempt(t.Context())
			if a.Outcome != election.Granted {
				t.Fatalf("got %+v", a)
			}
			return a.Lock.Session()
		}
		one, two := led(1), led(2)
		for i, c := range []struct {
			end  func()
			left int
		}{{func() {}, 2}, {func() { server.Terminate(one.PID()); time.Sleep(3 * time.Second) }, 1}, {two.Close, 0}} {
			if c.end(); left() != c.left {
				t.Errorf("step %d: %d sessions, want %d", i, left(), c.left)
			}
		}
		one.Close()
		sessions.Lock()
		defer sessions.Unlock()
		if _, kept := sessions.of[pool]; kept {
			t.Error("the pool is remembered")
		}
	})
}
