package electortest_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A template for tests of your code: a service in two processes, a server and a fault, without
// a database and without waiting. Copy this file.

// A clerk files one order per second in the process that leads.
type clerk struct {
	pool   *sql.DB
	leader *elector.Elector
}

func (c *clerk) run(ctx context.Context) error {
	return c.leader.Run(ctx, func(ctx context.Context, term *elector.Term) error {
		for ctx.Err() == nil {
			err := term.InTx(ctx, c.pool, nil, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE orders SET filed_by = $1 WHERE id = (SELECT min(id) FROM orders WHERE filed_by IS NULL)", c.leader.CandidateID())
				return err
			})
			if err != nil && ctx.Err() == nil {
				slog.Warn("order not filed, will try again", "error", err) // to return it would be to resign
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
		return nil
	})
}

// newClerk returns a clerk in a separate process.
func newClerk(t *testing.T, id string, process *electortest.Process) *clerk {
	pool := process.Open()
	t.Cleanup(func() { _ = pool.Close() })
	leader, err := elector.New(pool, "orders", elector.WithCandidateID(id))
	if err != nil {
		t.Fatal(err)
	}
	return &clerk{pool: pool, leader: leader}
}

func TestOrdersAreFiledOnWhenTheLeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		var filed []string // by whom
		server.Handle(func(s electortest.Statement) (electortest.Answer, error) {
			s.OnCommit(func() { filed = append(filed, s.Args[0].(string)) })
			return electortest.Answer{Affected: 1}, nil
		})
		one, two := server.NewProcess(), server.NewProcess()
		ctx, shutdown := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- newClerk(t, "one", one).run(ctx) }()
		time.Sleep(time.Second)
		go func() { done <- newClerk(t, "two", two).run(ctx) }()

		time.Sleep(4500 * time.Millisecond)
		one.Cut(electortest.Both)
		time.Sleep(20 * time.Second)
		one.Mend()
		shutdown()
		<-done
		<-done
		if n := len(filed); n < 12 || filed[0] != "one" || filed[n-1] != "two" || !slices.IsSorted(filed) {
			t.Errorf("filed by %q", filed)
		}
	})
}

func TestAnOrderThatCouldNotBeFiledIsTriedAgainInTheSameTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		attempts, filed := 0, 0
		server.Handle(func(s electortest.Statement) (electortest.Answer, error) {
			if attempts++; attempts == 2 {
				return electortest.Answer{}, &electortest.Error{Code: "40P01", Message: "deadlock detected"}
			}
			s.OnCommit(func() { filed++ })
			return electortest.Answer{Affected: 1}, nil
		})
		c := newClerk(t, "one", server.NewProcess())
		ctx, shutdown := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer shutdown()
		if err := c.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if attempts < 3 || filed != attempts-1 {
			t.Errorf("%d of %d attempts filed an order, want all but one", filed, attempts)
		}
	})
}
