package ticks

import (
	"context"
	"embed"
	"errors"
	"fmt"

	pgdb "github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/tables"
	"github.com/pgelector/pgelector/ticks/internal/db"
)

func (c config) queries(under db.DBTX) *db.Queries { return db.New(tables.In(under, c.schema)) }

//go:embed migrations/*.sql
var files embed.FS

var migrations = tables.Load(files)

// Migrate creates the schema and the tables, which all schedules of the schema share, or brings them up to date, in
// one transaction. Any number of processes may call it at once, and at each start: one does the work and the others
// wait for it. If there is nothing to do, Migrate needs only SELECT on ticks_migrations. Otherwise the role must
// be allowed to create tables in the schema, and the schema itself if it does not exist. Tables of a newer version stay
// as they are.
func (t *Ticks) Migrate(ctx context.Context) error {
	return tables.Set{Schema: t.schema, Migrations: t.migrations, Statements: t.statements, Explain: explain}.Migrate(ctx, t.pool)
}

func (c config) statements(under pgdb.DBTX) tables.Statements {
	q := c.queries(under)
	return tables.Statements{
		Lock: func(ctx context.Context, high, low int32) error {
			return q.LockMigrations(ctx, db.LockMigrationsParams{High: high, Low: low})
		},
		Installed: func(ctx context.Context, schema string) (bool, bool, error) {
			there, err := q.Installed(ctx, schema)
			return there.HasSchema, there.HasTicks, err
		},
		Version:       q.Version,
		RecordVersion: q.RecordVersion,
	}
}

// ErrNotMigrated is returned when the tables are missing or older than the program: call Migrate.
var ErrNotMigrated = errors.New("ticks: the tables are missing or too old: call Migrate, as a role that may create them")

// explain says what failed, and what to do about it.
func explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		switch state.SQLState() {
		case "3F000", "42P01", "42703": // no such schema, table or column
			return fmt.Errorf("%w (failed to %s): %w", ErrNotMigrated, doing, err)
		}
	}
	return fmt.Errorf("ticks: %s: %w", doing, err)
}
