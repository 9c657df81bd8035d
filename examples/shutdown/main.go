// Command shutdown leads until SIGTERM or Ctrl-C. Then its work returns, it releases the
// lock, so that another process leads immediately, and it exits with status 0.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
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
	if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) { // that is a clean stop
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	pool, err := sql.Open(cmp.Or(os.Getenv("DRIVER"), "pgx"), os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close() // after Run has released the lock
	e, err := elector.New(pool, "shutdown example")
	if err != nil {
		return err
	}
	return e.Run(ctx, work) // returns after work has returned and the lock is released
}

// work is a placeholder for the leader's work. A signal ends its context, like the loss of
// the term. It then has the drain, 2 s by default, to return.
func work(ctx context.Context, term *elector.Term) error {
	fmt.Println("leading", term.Token())
	<-ctx.Done()
	fmt.Println("stopped", context.Cause(ctx))
	return nil
}
