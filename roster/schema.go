package roster

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/binary"
	"fmt"
	"strings"

	pgdb "github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/roster/internal/db"
)

// placeholder stands for the chosen schema in queries/roster and migrations. sqlc's
// statements are constants, and a search_path set on a pooled connection would stay there
// for its next borrower.
const placeholder = "chosen."

// inSchema is a DBTX that replaces the placeholder by a schema.
type inSchema struct {
	under  db.DBTX
	schema string // quoted, with the dot
}

var _ db.DBTX = inSchema{}

func (s inSchema) replace(query string) string {
	return strings.ReplaceAll(query, placeholder, s.schema)
}

func (s inSchema) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return s.under.ExecContext(ctx, s.replace(query), args...)
}

func (s inSchema) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return s.under.PrepareContext(ctx, s.replace(query))
}

func (s inSchema) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return s.under.QueryContext(ctx, s.replace(query), args...)
}

func (s inSchema) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return s.under.QueryRowContext(ctx, s.replace(query), args...)
}

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

func (c config) queries(under db.DBTX) *db.Queries { return db.New(c.on(under)) }

func (c config) on(under db.DBTX) inSchema { return inSchema{under, quote(c.schema) + "."} }

// quote quotes an identifier that contains no NUL.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

//go:embed migrations/*.sql
var files embed.FS

// migrations are migrations/N.sql in order: the N-th brings the tables from version N-1 to
// N. A released one never changes. Programs of the previous version must be able to use
// the new tables, because both versions run during a rolling update.
var migrations = load()

func load() (all []string) {
	for n := 1; ; n++ {
		text, err := files.ReadFile(fmt.Sprintf("migrations/%d.sql", n))
		if err != nil {
			return all
		}
		all = append(all, string(text))
	}
}

// Migrate creates the schema and its tables, or brings them up to date, in one
// transaction. Any number of processes may call it at once, and at each start: one does
// the work and the others wait for it. If there is nothing to do, Migrate needs only
// SELECT on roster_migrations. Otherwise the role must be allowed to create tables in the
// schema, and the schema itself if it does not exist. Tables of a newer version stay as
// they are.
func (r *Roster) Migrate(ctx context.Context) error {
	current, err := r.current(ctx)
	if err != nil || current {
		return err
	}
	// Read committed, to see what others committed before they gave up the lock.
	tx, err := r.pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return explain("migrate", err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if err := r.migrate(ctx, tx); err != nil {
		return explain(fmt.Sprintf("migrate the schema %s", quote(r.schema)), err)
	}
	return explain("migrate: commit", tx.Commit())
}

// current reports whether the tables are up to date.
func (r *Roster) current(ctx context.Context) (bool, error) {
	there, err := ask(ctx, r.config, r.pool, func(q *db.Queries) (db.InstalledRow, error) { return q.Installed(ctx, r.schema) })
	if err != nil || !there.HasRoster {
		return false, explain("look for the tables", err)
	}
	version, err := ask(ctx, r.config, r.pool, func(q *db.Queries) (int32, error) { return q.Version(ctx) })
	return int(version) >= len(r.migrations), explain("read the version of the tables", err)
}

func (r *Roster) migrate(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, pgdb.RollBackAndChain); err != nil {
		return err
	}
	q := r.queries(tx)
	if err := q.LockMigrations(ctx, migrationLock(r.schema)); err != nil {
		return err
	}
	there, err := q.Installed(ctx, r.schema)
	if err != nil {
		return err
	}
	if !there.HasSchema { // CREATE SCHEMA IF NOT EXISTS needs the privilege even if the schema exists
		if _, err := tx.ExecContext(ctx, "CREATE SCHEMA "+quote(r.schema)); err != nil {
			return err
		}
	}
	version := int32(0)
	if there.HasRoster {
		if version, err = q.Version(ctx); err != nil {
			return err
		}
	}
	for version++; int(version) <= len(r.migrations); version++ {
		if _, err := r.on(tx).ExecContext(ctx, r.migrations[version-1]); err != nil {
			return fmt.Errorf("version %d: %w", version, err)
		}
		if err := q.RecordVersion(ctx, version); err != nil {
			return err
		}
	}
	return nil
}

func migrationLock(schema string) db.LockMigrationsParams {
	sum := sha256.Sum256([]byte("pgelector roster: " + schema))
	return db.LockMigrationsParams{
		High: int32(binary.BigEndian.Uint32(sum[0:4])),
		Low:  int32(binary.BigEndian.Uint32(sum[4:8])),
	}
}
