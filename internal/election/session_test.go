package election_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/election"
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
