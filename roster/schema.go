package roster

import (
	"context"
	"embed"

	pgdb "github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/tables"
	"github.com/pgelector/pgelector/roster/internal/db"
)

// ask makes a call that reads on the pool, or on a connection of it. If a text has no equivalent
// in the client's encoding, as one of a program whose driver sets none may, texts are read as they
// are.
func ask[T any](ctx context.Context, c config, pool pooled.Pool, call func(*db.Queries) (T, error)) (T, error) {
	value, err := pooled.Ask(ctx, pool, func(under pgdb.DBTX) (T, error) { return call(c.queries(under)) })
	if sqlState(err) == "22P05" {
		return pooled.Ask(ctx, pool, func(under pgdb.DBTX) (T, error) {
			if _, err := c.queries(under).ReadBytes(ctx); err != nil {
				var none T
				return none, err
			}
			return call(c.queries(under))
		})
	}
	return value, err
}

// tell is ask for a call that writes.
func tell(ctx context.Context, c config, pool pooled.Pool, call func(*db.Queries) error) error {
	_, err := pooled.Tell(ctx, pool, func(under pgdb.DBTX) (any, error) { return nil, call(c.queries(under)) })
	return err
}

func (c config) queries(under db.DBTX) *db.Queries { return db.New(tables.In(under, c.schema)) }

//go:embed migrations/*.sql
var files embed.FS

var migrations = tables.Load(files)

// Migrate creates the schema and its tables, or brings them up to date, in one
// transaction. Any number of processes may call it at once, and at each start: one does
// the work and the others wait for it. If there is nothing to do, Migrate needs only
// SELECT on roster_migrations. Otherwise the role must be allowed to create tables in the
// schema, and the schema itself if it does not exist. Tables of a newer version stay as
// they are.
func (r *Roster) Migrate(ctx context.Context) error {
	return tables.Set{Schema: r.schema, Migrations: r.migrations, Statements: r.statements, Explain: explain}.Migrate(ctx, r.pool)
}

func (c config) statements(under pgdb.DBTX) tables.Statements {
	q := c.queries(under)
	return tables.Statements{
		Lock: func(ctx context.Context, high, low int32) error {
			return q.LockMigrations(ctx, db.LockMigrationsParams{High: high, Low: low})
		},
		Installed: func(ctx context.Context, schema string) (bool, bool, error) {
			there, err := q.Installed(ctx, schema)
			return there.HasSchema, there.HasRoster, err
		},
		Version:       q.Version,
		RecordVersion: q.RecordVersion,
	}
}
