package electortest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A lead that returns what InTx returned must not be taken for one that has failed
// while its term goes on.
func TestTheTermHasEndedWhenInTxFindsItsSessionLost(t *testing.T) {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open()
	defer pool.Close()
	for range 300 {
		e, err := elector.New(pool, "orders", elector.WithLease(time.Hour), elector.WithHeartbeatInterval(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leader, err := e.Leader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server.Terminate(leader.PID)
		err = term.InTx(t.Context(), pool, nil, func(*sql.Tx) error { return errors.New("called") })
		if !errors.Is(err, elector.ErrNotLeader) || term.Context().Err() == nil {
			t.Fatalf("got %v, and the term's context %v", err, term.Context().Err())
		}
		_ = term.Resign(t.Context())
	}
}

// A COMMIT that is not answered must not keep the work past its time: the outcome
// is unknown however long it waits, and another may lead by then.
func TestAnUnansweredCommitIsNotWaitedForPastTheDrain(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		term, _ := one.Term()
		err := term.InTx(context.Background(), one.pool, nil, func(*sql.Tx) error {
			one.process.Cut(electortest.Answers)
			return nil
		})
		b.wraps(err, elector.ErrOutcomeUnknown, elector.ErrLeaseExpired)
		b.within("InTx returns, once the term has ended", 0, time.Since(term.Deadline()), lease/5-time.Millisecond) // the drain
	})
}
