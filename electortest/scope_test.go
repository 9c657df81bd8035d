package electortest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

var inside = elector.WithScope(elector.TransactionScope)

func TestAnElectionThroughAPoolerIsLedInsideATransaction(t *testing.T) {
	bubble(t, func(b *bench) {
		pooler := b.NewPooler(4)
		var all []*elector.Elector
		for range 2 {
			pool := pooler.Open()
			defer pool.Close()
			e, err := elector.New(pool, "orders")
			b.wraps(err)
			all = append(all, e)
		}
		term := b.campaign(all[0])
		b.wraps(term.Verify(always))
		if _, elected, err := all[1].TryCampaign(always); elected || err != nil {
			b.Errorf("the second was elected: %v, %v", elected, err)
		}
		time.Sleep(time.Minute)
		b.wraps(term.Verify(always))
		b.wraps(term.Resign(always))
		if n := len(b.Locks()); n != 0 {
			b.Errorf("%d locks are left", n)
		}
		b.wraps(b.campaign(all[1]).Resign(always))
	})
}

// A pooler of one backend has none for the second connection of a candidate.
func TestAPoolerWithoutAConnectionLeftIsNamed(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.NewPooler(1).Open()
		defer pool.Close()
		e, err := elector.New(pool, "orders", inside)
		b.wraps(err)
		_, _, err = e.TryCampaign(always)
		if err == nil || !strings.Contains(err.Error(), "the pooler may have no server connection left") {
			b.Errorf("got %v", err)
		}
	})
}

func TestAStoppedLeaderLosesItsTransactionAfterALease(t *testing.T) {
	for name, stop := range map[string]func(*candidate){
		"frozen": func(c *candidate) { c.process.Freeze() },
		"cut":    func(c *candidate) { c.process.Cut(electortest.Both) },
	} {
		scene(t, name, func(b *bench) {
			one := b.run("one", inside)
			b.leads(one)
			two := b.run("two", inside)
			time.Sleep(heartbeat)
			stop(one)
			b.within("the next one leads", lease-heartbeat, b.leads(two), lease+heartbeat)
			one.process.Thaw()
			one.process.Mend()
			time.Sleep(lease)
			b.ended(one, hooks.LeaseExpired)
		})
	}
}

// An error inside the transaction releases the lock, so the term ends at once.
func TestAnErrorInsideTheTransactionEndsTheTerm(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one", inside)
		b.leads(one)
		term, _ := one.Term()
		b.LimitLocks(1)
		b.wraps(term.TransferTo(always, "two"), elector.ErrLockTableFull)
		if one.IsLeader() {
			b.Error("it still leads")
		}
	})
}

// The barrier and the token are another connection's. If the session loses its lock meanwhile,
// another may have led, with a smaller token: it is not elected.
func TestACandidateThatLosesItsTransactionAtTheBarrierIsNotElected(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", inside)
		pool := b.Open()
		defer pool.Close()
		fenced, err := pool.Begin()
		b.wraps(err)
		guard := db.PairIsFreeParams{High: int32(one.Key() >> 32), Low: int32(one.Key())}
		_, err = db.New(fenced).PairIsFree(always, guard) // shares the guard lock, as InTx does
		b.wraps(err)
		campaign := make(chan error)
		go func() {
			_, _, err := one.TryCampaign(always)
			campaign <- err
		}()
		time.Sleep(time.Second)
		b.Terminate(b.pid(one))
		b.wraps(fenced.Rollback())
		if err := <-campaign; err == nil {
			b.Error("the attempt did not fail")
		}
		b.failed(one, hooks.OpCampaign) // and not the first heartbeat of a term
	})
}

func TestADeputyInsideATransaction(t *testing.T) {
	for name, standby := range map[string]elector.Standby{"deputy": elector.Deputy, "wait": elector.Wait} {
		scene(t, name, func(b *bench) {
			opts := []elector.Option{inside, elector.WithStandby(standby), elector.WithRetryInterval(time.Minute)}
			one := b.run("one", opts...)
			b.leads(one)
			two := b.run("two", opts...)
			time.Sleep(2 * time.Minute)
			b.Terminate(b.pid(one))
			b.within("the deputy leads", 0, b.leads(two), 200*time.Millisecond)
		})
	}
}

func TestTransfersInsideATransaction(t *testing.T) {
	for name, opts := range map[string][2][]elector.Option{
		"inside": {{inside}, {inside}},
		"out":    {{inside}, nil},
		"in":     {nil, {inside}},
		"deputy": {{inside}, {inside, elector.WithStandby(elector.Deputy)}},
	} {
		scene(t, name, func(b *bench) {
			one := b.run("one", opts[0]...)
			b.leads(one)
			two := b.run("two", opts[1]...)
			time.Sleep(heartbeat)
			leader, next := one, two
			for range 4 {
				term, _ := leader.Term()
				b.wraps(term.TransferTo(always, next.CandidateID()))
				b.leads(next)
				leader, next = next, leader
				time.Sleep(heartbeat)
			}
			term, _ := leader.Term()
			ctx, cancel := context.WithTimeout(always, time.Second)
			defer cancel()
			if err := term.TransferTo(ctx, "nobody"); err == nil {
				b.Error("transferred to nobody")
			}
			if n := len(b.Locks()); n > 4 {
				b.Errorf("an offer is left: %+v", b.Locks())
			}
		})
	}
}
