package electortest_test

import (
	"context"
	"database/sql"
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
		for {
			err := term.InTx(ctx, c.pool, nil, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE orders SET filed_by = $1 WHERE id = (SELECT min(id) FROM orders WHERE filed_by IS NULL)", c.leader.CandidateID())
				return err
			})
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil
			}
			if err != nil {
				return err
			}
		}
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
