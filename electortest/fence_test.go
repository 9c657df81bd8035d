package electortest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// The server ends a leader's session during a transaction of its term.
func TestTheNextTermWaitsForTheTransactionsOfTheLast(t *testing.T) {
	for _, shares := range []bool{false, true} {
		bubble(t, func(b *bench) {
			committed := false
			b.Handle(func(s electortest.Statement) (electortest.Answer, error) {
				s.OnCommit(func() { committed = true })
				return electortest.Answer{}, nil
			})
			one := b.candidate("one")
			term, err := one.Campaign(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			goOn, wrote := make(chan bool), make(chan error)
			go func() {
				wrote <- term.InTx(context.Background(), one.pool, nil, func(tx *sql.Tx) error {
					_, err := tx.Exec("write")
					goOn <- true
					<-goOn
					return err
				})
			}()
			<-goOn
			b.Terminate(b.pid(one))
			elected, resign := b.next(shares)
			time.Sleep(heartbeat / 2)
			select {
			case led := <-elected:
				b.Error("the next term began beside a transaction of the last")
				elected <- led
			default:
			}
			goOn <- true
			b.wraps(<-wrote)
			if !<-elected || !committed {
				b.Errorf("elected, committed %v", committed)
			}
			err = term.InTx(context.Background(), one.pool, nil, func(*sql.Tx) error { return nil })
			b.wraps(err, elector.ErrNotLeader, elector.ErrRolledBack)
			resign()
			_ = term.Resign(context.Background())
		})
	}
}

// next is the next leader, with or without a shared session.
func (b *bench) next(shares bool) (elected chan bool, resign func()) {
	b.Helper()
	two := b.candidate("two").Elector
	closes := func() {}
	if shares {
		pool := b.Open()
		session, err := elector.NewSession(pool)
		if err != nil {
			b.Fatal(err)
		}
		if two, err = session.Elector("orders"); err != nil {
			b.Fatal(err)
		}
		closes = func() {
			_ = session.Close(context.Background())
			_ = pool.Close()
		}
	}
	elected = make(chan bool, 1)
	var term *elector.Term
	go func() {
		var err error
		term, err = two.Campaign(context.Background())
		elected <- err == nil
	}()
	return elected, func() {
		_ = term.Resign(context.Background())
		closes()
	}
}
