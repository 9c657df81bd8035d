// Command migrator is a process of the tests: it migrates once, under one of several locks.
//
//	migrator LOCK DRIVER
//
// It migrates the database of DATABASE_URL, prints each version that it applies, and "done". LEASE is the lease.
package main

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/pgelector/pgelector/elector"
	examples "github.com/pgelector/pgelector/examples/migrations"
	"github.com/pgelector/pgelector/migrations"
)

//go:embed goose/*.sql
var forGoose embed.FS

//go:embed migrate/*.sql
var forMigrate embed.FS

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func run(ctx context.Context, which, driver string) error {
	pool, err := sql.Open(driver, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	lease, err := time.ParseDuration(os.Getenv("LEASE"))
	if err != nil {
		return err
	}
	files, err := fs.Sub(forGoose, "goose")
	if err != nil {
		return err
	}
	switch which {
	case "goose":
		return report(examples.Goose(ctx, pool, files, elector.WithLease(lease)))
	case "golang-migrate":
		files, err := fs.Sub(forMigrate, "migrate")
		if err != nil {
			return err
		}
		return examples.GolangMigrate(ctx, pool, files, elector.WithLease(lease))
	case "golang-migrate-own":
		return own(ctx, pool)
	}
	ours, err := migrations.New(pool, "migrations", elector.WithLease(lease))
	if err != nil {
		return err
	}
	option, err := option(which, lease, ours)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, pool, files, option...)
	if err != nil {
		return err
	}
	return report(provider.Up(ctx))
}

// option is one of goose's locks, or none.
func option(which string, lease time.Duration, ours *migrations.Lock) ([]goose.ProviderOption, error) {
	const patience = 600
	switch which {
	case "none":
		return nil, nil
	case "locker":
		return []goose.ProviderOption{goose.WithLocker(ours)}, nil
	case "goose-session":
		l, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, patience))
		return []goose.ProviderOption{goose.WithSessionLocker(l)}, err
	case "goose-table":
		l, err := lock.NewPostgresTableLocker(lock.WithTableLeaseDuration(lease), lock.WithTableHeartbeatInterval(lease/3),
			lock.WithTableLockTimeout(time.Second, patience))
		return []goose.ProviderOption{goose.WithLocker(l)}, err
	}
	return nil, errors.New("no such lock: " + which)
}

func report(results []*goose.MigrationResult, err error) error {
	for _, r := range results {
		fmt.Println("applied", r.Source.Version)
	}
	return err
}

// own is golang-migrate with its own lock alone.
func own(ctx context.Context, pool *sql.DB) error {
	source, err := iofs.New(forMigrate, "migrate")
	if err != nil {
		return err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	driver, err := postgres.WithConnection(ctx, conn, &postgres.Config{})
	if err != nil {
		return err
	}
	m, err := migrate.NewWithInstance("source", source, "postgres", driver)
	if err != nil {
		return err
	}
	m.LockTimeout = 10 * time.Minute
	if err := m.Up(); !errors.Is(err, migrate.ErrNoChange) {
		return err
	}
	return nil
}
