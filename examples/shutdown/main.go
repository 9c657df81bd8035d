// Command shutdown leads until it is asked to end, by SIGTERM or Ctrl-C. Then its
// work returns first, the lock is released after that, so that another process
// leads at once, and the program ends with status 0.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"

	"github.com/pgelector/pgelector/elector"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	pool, err := sql.Open(cmp.Or(os.Getenv("DRIVER"), "pgx"), os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close() // after Run: the lock is released, and the session closed
	e, err := elector.New(pool, "shutdown example")
	if err != nil {
		return err
	}
	return e.Run(ctx, work) // it returns when work has returned and the lock is free
}

// work stands for yours. A signal ends its context, like the loss of the term;
// then it has the drain, 2 s by default, to wind down.
func work(ctx context.Context, term *elector.Term) error {
	fmt.Println("leading", term.Token())
	<-ctx.Done()
	fmt.Println("wound down", context.Cause(ctx))
	return nil
}
