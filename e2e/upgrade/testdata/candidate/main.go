// A candidate that does what standard input says: it is built with each version of the library.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/elector"
)

func main() {
	dsn, election, id := os.Args[1], os.Args[2], os.Args[3]
	lease, err := time.ParseDuration(os.Args[4])
	check(err)
	heartbeat, err := time.ParseDuration(os.Args[5])
	check(err)
	pool, err := sql.Open("pgx", dsn)
	check(err)
	e, err := elector.New(pool, election, elector.WithCandidateID(id), elector.WithLease(lease),
		elector.WithHeartbeatInterval(heartbeat), elector.WithRetryInterval(50*time.Millisecond))
	check(err)
	orders := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			orders <- in.Text()
		}
		os.Exit(0)
	}()
	for {
		_ = e.Run(context.Background(), func(ctx context.Context, term *elector.Term) error {
			fmt.Println("elected", term.Token())
			for {
				select {
				case <-ctx.Done():
					fmt.Println("over")
					return nil
				case order := <-orders:
					obey(ctx, order, term, pool, orders)
				}
			}
		})
	}
}

func obey(ctx context.Context, order string, term *elector.Term, pool *sql.DB, orders <-chan string) {
	what, arg, _ := strings.Cut(order, " ")
	switch what {
	case "write":
		err := term.InTx(ctx, pool, nil, func(tx *sql.Tx) error {
			fmt.Println("inside")
			<-orders
			_, err := tx.Exec("INSERT INTO "+arg+" VALUES ($1)", term.Token())
			return err
		})
		fmt.Println("wrote", err)
	case "transfer":
		go func() { fmt.Println("transferred", term.TransferTo(context.Background(), arg)) }()
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
