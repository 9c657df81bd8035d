package elector_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// openPool stands in for sql.Open with lib/pq or pgx: its server lets one
// candidate lead, and resign.
func openPool() *sql.DB {
	pool, mock, err := sqlmock.New()
	if err != nil {
		log.Fatal(err)
	}
	expectTerm(mock, 281474976711401)
	expect(mock, "Unlock", true)
	return pool
}

// A candidate of the election "orders" campaigns, works while it leads, and
// resigns by returning.
func ExampleElector_Run() {
	pool := openPool() // sql.Open("pgx", dsn)
	defer pool.Close()
	ctx := context.Background() // ends at SIGTERM: signal.NotifyContext

	e, err := elector.New(pool, "orders")
	if err != nil {
		log.Fatal(err)
	}
	err = e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
		fmt.Println("leading with token", term.Token())
		// Work here, until ctx is done. The lock is kept until this returns.
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// leading with token 281474976711401
	// done: <nil>
}

// The term is looked after by the caller.
func ExampleElector_Campaign() {
	pool := openPool()
	defer pool.Close()
	ctx := context.Background()

	e, err := elector.New(pool, "orders", elector.WithCandidateID("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	term, err := e.Campaign(ctx) // waits until elected
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.CandidateID(), "leads:", e.IsLeader())
	fmt.Println("resigned:", term.Resign(ctx))
	fmt.Println(e.CandidateID(), "leads:", e.IsLeader())
	// Output:
	// web-1 leads: true
	// resigned: <nil>
	// web-1 leads: false
}

// The work is guarded where it is done, in a process that may or may not lead.
func ExampleElector_RunIfLeader() {
	pool := openPool()
	defer pool.Close()
	ctx := context.Background()

	elected := make(chan struct{})
	e, err := elector.New(pool, "orders", elector.WithHooks(hooks.Funcs{
		Elected: func(context.Context, hooks.Elected) { close(elected) },
	}))
	if err != nil {
		log.Fatal(err)
	}
	if err := e.Start(ctx); err != nil {
		log.Fatal(err)
	}
	<-elected

	publish := func(context.Context) error { fmt.Println("publishing"); return nil }
	fmt.Println(e.RunIfLeader(ctx, publish))
	fmt.Println(e.Stop(ctx))
	fmt.Println(e.RunIfLeader(ctx, publish))
	// Output:
	// publishing
	// true <nil>
	// <nil>
	// false <nil>
}

// The cause of the term's context says why the term ended.
func ExampleTerm_Context() {
	pool := openPool()
	defer pool.Close()
	ctx := context.Background()

	e, err := elector.New(pool, "orders")
	if err != nil {
		log.Fatal(err)
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	go term.Resign(ctx)

	<-term.Context().Done()
	cause := context.Cause(term.Context())
	fmt.Println(cause)
	fmt.Println(errors.Is(cause, elector.ErrResigned), errors.Is(cause, elector.ErrSessionLost))
	// Output:
	// elector: the term was resigned
	// true false
}

// The key is the same in every process and language, so that an election can be
// looked up in pg_locks.
func ExampleKeyFromName() {
	fmt.Println(elector.KeyFromName("orders"))
	// Output: -7492410215596134511
}

// A candidate that is not well does not campaign.
func ExampleWithHealth() {
	pool := openPool()
	defer pool.Close()

	freeMemory := 0.1 // of all
	e, err := elector.New(pool, "orders", elector.WithHealth(
		func(context.Context) float64 { return freeMemory }, elector.HealthPolicy{Minimum: 0.2}))
	if err != nil {
		log.Fatal(err)
	}
	_, elected, err := e.TryCampaign(context.Background())
	fmt.Println(elected, errors.Is(err, elector.ErrUnhealthy))

	freeMemory = 0.3
	term, elected, err := e.TryCampaign(context.Background())
	fmt.Println(elected, err, e.Health().Score)
	fmt.Println("resigned:", term.Resign(context.Background()))
	// Output:
	// false true
	// true <nil> 0.3
	// resigned: <nil>
}

// The leadership is moved to another candidate.
func ExampleTerm_TransferTo() {
	pool := openPoolWithSuccessor()
	defer pool.Close()
	ctx := context.Background()

	e, err := elector.New(pool, "orders", elector.WithCandidateID("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	err = term.TransferTo(ctx, "web-2") // web-1 leads until web-2 is ready
	fmt.Println("web-2 has the lock:", err == nil)
	// Output: web-2 has the lock: true
}

// openPoolWithSuccessor stands in for a server in which web-2 waits.
func openPoolWithSuccessor() *sql.DB {
	pool, mock, err := sqlmock.New()
	if err != nil {
		log.Fatal(err)
	}
	expectTerm(mock, 281474976711401)
	expect(mock, "OfferTransfer", true, 77)
	expect(mock, "MoveUp", 1, 0)
	expect(mock, "UnlockTo", true, true, 0)
	expect(mock, "Unlock", true)
	return pool
}
