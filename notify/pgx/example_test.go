package pgxnotify_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/elector"
	pgxnotify "github.com/pgelector/pgelector/notify/pgx"
)

func ExampleNew() {
	const dsn = "postgres://user@host:5432/database?connect_timeout=5"
	pool, err := sql.Open("pgx", dsn)
	if err != nil {
		log.Fatal(err)
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		log.Fatal(err)
	}
	notifier, err := pgxnotify.New(config, func(err error) { log.Print(err) })
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
