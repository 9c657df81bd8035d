package ticks

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	pgdb "github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/ticks/internal/db"
)

// placeholder stands for the chosen schema in queries/ticks and migrations. sqlc's statements are
// constants, and a search_path set on a pooled connection would stay there for its next borrower.
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

// Migrate creates the schema and the tables, which all schedules of the schema share, or brings them up to date, in
// one transaction. Any number of processes may call it at once, and at each start: one does the work and the others
// wait for it. If there is nothing to do, Migrate needs only SELECT on ticks_migrations. Otherwise the role must
// be allowed to create tables in the schema, and the schema itself if it does not exist. Tables of a newer version stay
// as they are.
func (t *Ticks) Migrate(ctx context.Context) error {
	version, err := pooled.Ask(ctx, t.pool, func(under pgdb.DBTX) (int32, error) {
		q := t.queries(under)
		there, err := q.Installed(ctx, t.schema)
		if err != nil || !there.HasTicks {
			return 0, err
		}
		return q.Version(ctx)
	})
	if err != nil || int(version) >= len(t.migrations) {
		return explain("read the version of the tables", err)
	}
	// Read committed, to see what others committed before they gave up the lock.
	tx, err := t.pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return explain("migrate", err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if err := t.migrate(ctx, tx); err != nil {
		return explain(fmt.Sprintf("migrate the schema %s", quote(t.schema)), err)
	}
	return explain("migrate: commit", tx.Commit())
}

func (t *Ticks) migrate(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, pgdb.RollBackAndChain); err != nil {
		return err
	}
	q := t.queries(tx)
	if err := q.LockMigrations(ctx, migrationLock(t.schema)); err != nil {
		return err
	}
	there, err := q.Installed(ctx, t.schema)
	if err != nil {
		return err
	}
	if !there.HasSchema { // CREATE SCHEMA IF NOT EXISTS needs the privilege even if the schema exists
		if _, err := tx.ExecContext(ctx, "CREATE SCHEMA "+quote(t.schema)); err != nil {
			return err
		}
	}
	version := int32(0)
	if there.HasTicks {
		if version, err = q.Version(ctx); err != nil {
			return err
		}
	}
	for version++; int(version) <= len(t.migrations); version++ {
		if _, err := t.on(tx).ExecContext(ctx, t.migrations[version-1]); err != nil {
			return fmt.Errorf("version %d: %w", version, err)
		}
		if err := q.RecordVersion(ctx, version); err != nil {
			return err
		}
	}
	return nil
}

// migrationLock is the roster's too, because both may create the schema.
func migrationLock(schema string) db.LockMigrationsParams {
	sum := sha256.Sum256([]byte("pgelector roster: " + schema))
	return db.LockMigrationsParams{
		High: int32(binary.BigEndian.Uint32(sum[0:4])),
		Low:  int32(binary.BigEndian.Uint32(sum[4:8])),
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
