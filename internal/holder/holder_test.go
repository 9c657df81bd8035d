package holder

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = 7

func TestTheHolderIsWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		pool, other := server.Open(), server.Open()
		defer pool.Close()
		defer other.Close()
		if h, held, err := Of(t.Context(), other, key, time.Second); held || err != nil || h != (Holder{}) {
			t.Errorf("nobody leads: got %+v, %t, %v", h, held, err)
		}
		from := election.NewSource(pool, election.SessionConfig{CandidateID: "a", Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: time.Second}})
		a := election.New(from, election.Config{Key: key}).Attempt(t.Context())
		if a.Outcome != election.Granted {
			t.Fatalf("got %+v", a)
		}
		time.Sleep(3 * time.Second)
		h, held, err := Of(t.Context(), other, key, time.Second)
		if err != nil || !held || h.CandidateID != "a" || h.PID != a.Lock.Session().PID() || h.Lease != 10*time.Second || h.Scope != SessionScope || h.Blocks != "" {
			t.Errorf("got %+v, %t, %v", h, held, err)
		}
		lent, err := election.NewSource(other, election.SessionConfig{CandidateID: "b", Lease: lease.Lease{Length: time.Minute}}).Lend(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen := SeenBy(t.Context(), lent, key); seen.CandidateID != "a" || seen.PID != h.PID {
			t.Errorf("on a session: got %+v", seen)
		}
		if seen := SeenBy(t.Context(), lent, key+1); seen != (Holder{}) {
			t.Errorf("of another election: got %+v", seen)
		}
		lent.Fail(errors.New("enough"))
		a.Lock.Session().Close()
		server.Stop()
		if _, held, err := Of(t.Context(), other, key, time.Second); held || err == nil {
			t.Errorf("nobody can tell: held %t, %v", held, err)
		}
	})
}
