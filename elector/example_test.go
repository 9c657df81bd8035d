package elector_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

// openPool opens a pool of a server in memory. In a program:
//
//	pool, err := sql.Open("pgx", "postgres://user@host:5432/database?connect_timeout=5")
func openPool() (pool *sql.DB, closeAll func()) {
	server := electortest.NewServer()
	server.Handle(func(electortest.Statement) (electortest.Answer, error) { return electortest.Answer{Affected: 1}, nil })
	pool = server.Open()
	return pool, func() {
		_ = pool.Close()
		server.Close()
	}
}

// A candidate campaigns, works while it leads, and resigns by returning.
func ExampleElector_Run() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background() // in a program: signal.NotifyContext, which ends at SIGTERM

	e, err := elector.New(pool, "orders")
	if err != nil {
		log.Fatal(err)
	}
	err = e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
		fmt.Println("leading:", term.Valid())
		// Work until ctx is done. The lock is held until this function returns.
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// leading: true
	// done: <nil>
}

// The elector campaigns and leads in the background. Work is guarded where it is done.
func ExampleElector_Start() {
	pool, closeAll := openPool()
	defer closeAll()
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

// The caller owns the term.
func ExampleElector_Campaign() {
	pool, closeAll := openPool()
	defer closeAll()
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

// The cause of the term's context says why the term ended.
func ExampleTerm_Context() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	e, err := elector.New(pool, "orders")
	if err != nil {
		log.Fatal(err)
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	resigned := make(chan error)
	go func() { resigned <- term.Resign(ctx) }()

	<-term.Context().Done()
	cause := context.Cause(term.Context())
	fmt.Println(cause)
	fmt.Println(errors.Is(cause, elector.ErrResigned), errors.Is(cause, elector.ErrSessionLost))
	<-resigned
	// Output:
	// elector: the term was resigned
	// true false
}

// A transaction commits only during the term.
func ExampleTerm_InTx() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	e, err := elector.New(pool, "orders")
	if err != nil {
		log.Fatal(err)
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	ship := func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE orders SET shipped = true WHERE paid")
		return err
	}
	fmt.Println("while leading:", term.InTx(ctx, pool, nil, ship))
	_ = term.Resign(ctx)
	err = term.InTx(ctx, pool, nil, ship)
	fmt.Println("after the term:", errors.Is(err, elector.ErrNotLeader))
	// Output:
	// while leading: <nil>
	// after the term: true
}

// Any number of elections share one connection.
func ExampleNewSession() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	session, err := elector.NewSession(pool)
	if err != nil {
		log.Fatal(err)
	}
	for _, tenant := range []string{"acme", "globex"} {
		e, err := session.Elector("invoices of " + tenant)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := e.Campaign(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Election(), e.IsLeader())
	}
	fmt.Println("closed:", session.Close(ctx)) // ends the terms and releases the locks
	// Output:
	// invoices of acme true
	// invoices of globex true
	// closed: <nil>
}

// Any process can observe who leads. It need not be a candidate.
func ExampleElector_Observe() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	leader, err := elector.New(pool, "orders", elector.WithCandidateID("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	term, err := leader.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	observer, err := elector.New(pool, "orders", elector.WithRetryInterval(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	for l, err := range observer.Observe(ctx) {
		if errors.Is(err, elector.ErrNoLeader) {
			fmt.Println("nobody leads")
			break
		}
		if err != nil {
			log.Print(err) // the server did not answer; Observe goes on
			continue
		}
		fmt.Println(l.CandidateID, "leads")
		_ = term.Resign(ctx)
	}
	// Output:
	// web-1 leads
	// nobody leads
}

// The key is the same in every process and language. It identifies the election in
// pg_locks.
func ExampleKeyFromName() {
	fmt.Println(elector.KeyFromName("orders"))
	// Output: -7492410215596134511
}

// An unhealthy candidate does not campaign.
func ExampleWithHealth() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	freeMemory := 0.1
	e, err := elector.New(pool, "orders", elector.WithHealth(
		func(context.Context) elector.HealthReport { return elector.HealthReport{Score: freeMemory} }, elector.HealthPolicy{Minimum: 0.2, Interval: time.Minute}))
	if err != nil {
		log.Fatal(err)
	}
	_, elected, err := e.TryCampaign(ctx)
	fmt.Println(elected, errors.Is(err, elector.ErrUnhealthy))

	freeMemory = 0.3
	term, elected, err := e.TryCampaign(ctx)
	fmt.Println(elected, err, e.Health().Score)
	fmt.Println("resigned:", term.Resign(ctx))
	// Output:
	// false true
	// true <nil> 0.3
	// resigned: <nil>
}

// The leader transfers its leadership to another candidate.
func ExampleTerm_TransferTo() {
	pool, closeAll := openPool()
	defer closeAll()
	ctx := context.Background()

	first, err := elector.New(pool, "orders", elector.WithCandidateID("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	term, err := first.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	second, err := elector.New(pool, "orders", elector.WithCandidateID("web-2"), elector.WithRetryInterval(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	if err := second.Start(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("transferred:", term.TransferTo(ctx, "web-2")) // web-1 leads until web-2 is ready
	_ = second.Stop(ctx)
	// Output: transferred: <nil>
}
