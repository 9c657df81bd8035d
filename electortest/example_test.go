package electortest_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// An elector runs on it as on any pool.
func Example() {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open() // instead of sql.Open("pgx", dsn)
	defer pool.Close()

	e, err := elector.New(pool, "orders", elector.WithCandidateID("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	err = e.Run(context.Background(), func(ctx context.Context, term *elector.Term) error {
		leader, err := e.Leader(ctx)
		fmt.Println(leader.CandidateID, "leads:", term.Valid())
		return err
	})
	_, nobody := e.Leader(context.Background())
	fmt.Println("resigned:", err, "and", nobody)
	// Output:
	// web-1 leads: true
	// resigned: <nil> and elector: nobody leads the election
}

// A handler answers the program's own statements.
func ExampleServer_Handle() {
	server := electortest.NewServer()
	defer server.Close()
	var orders []string
	server.Handle(func(s electortest.Statement) (electortest.Answer, error) {
		order := s.Args[0].(string)
		s.OnCommit(func() { orders = append(orders, order) })
		return electortest.Answer{Affected: 1}, nil
	})
	pool := server.Open()
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
	insert := func(order string) error {
		return term.InTx(ctx, pool, nil, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ($1)", order)
			return err
		})
	}
	fmt.Println("while it leads:", insert("tea"))
	_ = term.Resign(ctx)
	fmt.Println("afterwards:", insert("coffee") != nil)
	fmt.Println(orders)
	// Output:
	// while it leads: <nil>
	// afterwards: true
	// [tea]
}
