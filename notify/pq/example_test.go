package pqnotify_test

import (
	"context"
	"database/sql"
	"log"

	_ "github.com/lib/pq"

	"github.com/pgelector/pgelector/elector"
	pqnotify "github.com/pgelector/pgelector/notify/pq"
)

func ExampleNew() {
	const dsn = "postgres://user@host:5432/database?connect_timeout=5"
	pool, err := sql.Open("postgres", dsn)
	if err != nil {
		log.Fatal(err)
	}
	notifier, err := pqnotify.New(dsn, func(err error) { log.Print(err) })
	if err != nil {
		log.Fatal(err)
	}
	e, err := elector.New(pool, "orders", elector.WithNotifier(notifier))
	if err != nil {
		log.Fatal(err)
	}
	err = e.Run(context.Background(), func(ctx context.Context, _ *elector.Term) error {
		<-ctx.Done() // work until the term ends
		return ctx.Err()
	})
	log.Fatal(err)
}
