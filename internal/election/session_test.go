package election_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
)

// A keeper part keeps two values of each session, and reads them at the session's end.
type keeper struct {
	election.NoPart
	one, other election.PerSession[string]
	got        string
}

func (k *keeper) Lent(_ context.Context, s *election.Session) error {
	*k.one.Of(s), *k.other.Of(s) = "one", "other"
	return nil
}

func (k *keeper) Ended(s *election.Session, _ error) { k.got += *k.one.Of(s) + *k.other.Of(s) }

func TestWhatIsKeptOfASessionIsThereAtItsEnd(t *testing.T) {
	errEnd := errors.New("it ends")
	for name, end := range map[string]func(*testing.T, *election.Election, *election.Session){
		"given back":           func(_ *testing.T, _ *election.Election, s *election.Session) { s.GiveBack() },
		"discarded":            func(_ *testing.T, _ *election.Election, s *election.Session) { s.Fail(errEnd) },
		"discarded, and again": func(_ *testing.T, _ *election.Election, s *election.Session) { s.Fail(errEnd); s.Fail(errEnd) },
		"of a term that ended": func(t *testing.T, e *election.Election, s *election.Session) {
			a := e.AttemptOn(t.Context(), func(context.Context) (*election.Session, error) { return s, nil })
			_ = s.Lose(errEnd)
			election.GiveUp(a.Lock)
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
				c, k := sessions("a"), &keeper{}
				c.Parts = []election.Part{k}
				e := election.New(election.NewSource(pool, c), config(42))
				s, err := e.Source().Lend(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if end(t, e, s); k.got != "oneother" {
					t.Errorf("got %q", k.got)
				}
			})
		})
	}
}
func TestKeepalivesEndNoSessionBeforeItsLease(t *testing.T) {
	const maxTCP = 32767 // Linux: MAX_TCP_KEEPIDLE, MAX_TCP_KEEPINTVL
	pool := new(drivertest.Driver).Open()
	defer pool.Close()
	for length := time.Second; length <= 24*time.Hour; length = length*11/10 + time.Millisecond {
		from := election.NewSource(pool, election.SessionConfig{Lease: lease.Lease{Length: length, Heartbeat: min(length/5, 30*time.Second)}})
		set := map[string]int{}
		for _, one := range from.Settings() {
			set[one.Name], _ = strconv.Atoi(one.Value)
		}
		idle, interval, count := set["tcp_keepalives_idle"], set["tcp_keepalives_interval"], set["tcp_keepalives_count"]
		if min(idle, interval, count) < 1 || max(idle, interval) > maxTCP {
			t.Errorf("lease %v: %d s idle, %d times %d s: 0 is the system's own", length, idle, count, interval)
		}
		if ends := time.Duration(idle+count*interval) * time.Second; ends < length || ends > max(length+time.Second, 4*time.Second) {
			t.Errorf("lease %v: the connection is cut after %v", length, ends)
		}
	}
}
