package elector_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// A cron job runs on each host. On one of them it does its work, and holds the lock for longer than the
// clocks of the hosts differ.
func ExampleElector_TryRun() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	clean := func(ctx context.Context, term *elector.Term) error {
		other, err := elector.New(pool, "nightly")
		if err != nil {
			return err
		}
		elected, err := other.TryRun(ctx, func(context.Context, *elector.Term) error { return nil })
		fmt.Println("another host meanwhile:", elected, err)
		return nil
	}
	e, err := elector.New(pool, "nightly", elector.WithHold(50*time.Millisecond)) // say 1 min; here the clocks are one
	if err != nil {
		log.Fatal(err)
	}
	elected, err := e.TryRun(ctx, clean)
	fmt.Println("this host:", elected, err)
	// Output:
	// another host meanwhile: false <nil>
	// this host: true <nil>
}

// One attempt. The caller owns the term.
func ExampleElector_TryCampaign() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	e, err := elector.New(pool, "orders", elector.WithCandidateID("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	term, elected, err := e.TryCampaign(ctx)
	if err != nil || !elected {
		log.Fatal("another leads, or the attempt failed: ", err)
	}
	fmt.Println(e)
	fmt.Println("resigned:", term.Resign(ctx))
	fmt.Println(e)
	// Output:
	// candidate "web-1" of election "orders", leading
	// resigned: <nil>
	// candidate "web-1" of election "orders"
}

// Work that any process is asked to do, and only the leader does.
func ExampleElector_RunIfLeader() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	e, err := elector.New(pool, "orders")
	if err != nil {
		log.Fatal(err)
	}
	ship := func(ctx context.Context) error { return ctx.Err() } // ctx ends with the term
	led, err := e.RunIfLeader(ctx, ship)
	fmt.Println("a follower:", led, err)

	term, err := e.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	led, err = e.RunIfLeader(ctx, ship)
	fmt.Println("the leader:", led, err)
	_ = term.Resign(ctx) // waits for ship
	// Output:
	// a follower: false <nil>
	// the leader: true <nil>
}

// Any process can ask who leads. It need not be a candidate.
func ExampleElector_Leader() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	asker, err := elector.New(pool, "orders")
	if err != nil {
		log.Fatal(err)
	}
	_, err = asker.Leader(ctx)
	fmt.Println("nobody leads:", errors.Is(err, elector.ErrNoLeader))

	candidate, err := elector.New(pool, "orders", elector.WithCandidateID("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	term, err := candidate.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	leader, err := asker.Leader(ctx)
	fmt.Println(leader.CandidateID, leader.Lease, leader.Scope, err)
	_ = term.Resign(ctx)
	// Output:
	// nobody leads: true
	// web-1 10s session <nil>
}

// An operator asks the leader to go. Its work returns first, and then another leads.
func ExampleRequestResign() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	first, err := elector.New(pool, "orders", elector.WithCandidateID("web-1"), elector.WithHeartbeatInterval(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	term, err := first.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		<-term.Context().Done() // the work returns here
		_ = term.Resign(ctx)
	}()
	second, err := elector.New(pool, "orders", elector.WithCandidateID("web-2"), elector.WithRetryInterval(50*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	if err := second.Start(ctx); err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute) // for the leader's work to return
	defer cancel()
	next, err := elector.RequestResign(ctx, pool, "orders")
	fmt.Println("now leads", next.CandidateID, err)
	_ = second.Stop(ctx)
	// Output: now leads web-2 <nil>
}

// Through a transaction pooler a candidate holds its lock inside a transaction. Auto, the
// default, finds that out.
func ExampleWithScope() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	e, err := elector.New(pool, "orders", elector.WithScope(elector.TransactionScope))
	if err != nil {
		log.Fatal(err)
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	leader, err := e.Leader(ctx)
	fmt.Println("scope:", leader.Scope, err)
	fmt.Println("followers:", e.Settings().Takeover)
	_ = term.Resign(ctx)
	// Output:
	// scope: transaction <nil>
	// followers: poll
}

// Where milliseconds without a leader matter, the deputy waits in the server.
func ExampleWithTakeover() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	first, err := elector.New(pool, "orders")
	if err != nil {
		log.Fatal(err)
	}
	term, err := first.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	elected := make(chan struct{})
	second, err := elector.New(pool, "orders", elector.WithTakeover(elector.Wait), elector.WithHooks(hooks.Funcs{
		Elected: func(context.Context, hooks.Elected) { close(elected) },
	}))
	if err != nil {
		log.Fatal(err)
	}
	if err := second.Start(ctx); err != nil {
		log.Fatal(err)
	}
	_ = term.Resign(ctx)
	<-elected
	fmt.Println("takeover:", second.Settings().Takeover)
	_ = second.Stop(ctx)
	// Output: takeover: wait
}

// Hooks can be added and removed while the elector runs.
func ExampleElector_AddHooks() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	e, err := elector.New(pool, "orders")
	if err != nil {
		log.Fatal(err)
	}
	remove, err := e.AddHooks(hooks.Funcs{
		Elected: func(context.Context, hooks.Elected) { fmt.Println("elected") },
		Demoted: func(_ context.Context, d hooks.Demoted) { fmt.Println("demoted:", d.Reason) },
	})
	if err != nil {
		log.Fatal(err)
	}
	work := func(context.Context, *elector.Term) error { return nil }
	_ = e.Run(ctx, work)
	remove()
	fmt.Println("unseen:", e.Run(ctx, work))
	// Output:
	// elected
	// demoted: resigned
	// unseen: <nil>
}
