// Package migrations migrates a database when a program starts, in one process at a time.
package migrations

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/migrations"
	"github.com/pgelector/pgelector/migrations/golangmigrate"
	goosemigrations "github.com/pgelector/pgelector/migrations/goose"
)

// Goose runs the migrations of goose, and returns those that this process has run.
func Goose(ctx context.Context, pool *sql.DB, files fs.FS, opts ...elector.Option) ([]*goose.MigrationResult, error) {
	lock, err := migrations.New(pool, "migrations", opts...)
	if err != nil {
		return nil, err
	}
	provider, err := goosemigrations.NewProvider(pool, files, lock)
	if err != nil {
		return nil, err
	}
	return provider.Up(ctx)
}

// GolangMigrate runs the migrations of golang-migrate.
func GolangMigrate(ctx context.Context, pool *sql.DB, files fs.FS, opts ...elector.Option) error {
	lock, err := migrations.New(pool, "migrations", opts...)
	if err != nil {
		return err
	}
	from, err := iofs.New(files, ".")
	if err != nil {
		return err
	}
	defer from.Close()
	return golangmigrate.Up(ctx, pool, from, lock)
}
