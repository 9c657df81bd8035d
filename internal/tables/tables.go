// Package tables makes and upgrades the tables of an add-on, in a schema that the user chooses.
package tables

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pooled"
)

// Placeholder stands for the chosen schema in statements and migrations. sqlc's statements are constants, and a
// search_path set on a pooled connection would stay there for its next borrower.
const Placeholder = "chosen."

// InSchema is a DBTX that replaces the placeholder by a schema.
type InSchema struct {
	under  db.DBTX
	schema string // quoted, with the dot
}

var _ db.DBTX = InSchema{}

// In returns a DBTX that replaces the placeholder by a schema.
func In(under db.DBTX, schema string) InSchema { return InSchema{under, Quote(schema) + "."} }

func (s InSchema) replace(query string) string {
	return strings.ReplaceAll(query, Placeholder, s.schema)
}

// ExecContext implements [db.DBTX].
func (s InSchema) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return s.under.ExecContext(ctx, s.replace(query), args...)
}

// PrepareContext implements [db.DBTX].
func (s InSchema) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return s.under.PrepareContext(ctx, s.replace(query))
}

// QueryContext implements [db.DBTX].
func (s InSchema) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return s.under.QueryContext(ctx, s.replace(query), args...)
}

// QueryRowContext implements [db.DBTX].
func (s InSchema) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return s.under.QueryRowContext(ctx, s.replace(query), args...)
}

// Quote quotes an identifier that contains no NUL.
func Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Load reads migrations/N.sql in order: the N-th brings the tables from version N-1 to
// N. A released migration never changes. Programs of the previous version must be able to use
// the new tables, because both versions run during a rolling update.
func Load(files fs.FS) (all []string) {
	for n := 1; ; n++ {
		text, err := fs.ReadFile(files, fmt.Sprintf("migrations/%d.sql", n))
		if err != nil {
			return all
		}
		all = append(all, string(text))
	}
}

// Statements are the statements of the add-on that a migration needs.
type Statements struct {
	Lock          func(ctx context.Context, high, low int32) error // until the transaction ends
	Installed     func(ctx context.Context, schema string) (hasSchema, hasTables bool, err error)
	Version       func(context.Context) (int32, error)
	RecordVersion func(ctx context.Context, version int32) error
}

// Set is the tables of one add-on.
type Set struct {
	Schema     string
	Migrations []string
	Statements func(db.DBTX) Statements
	Explain    func(doing string, err error) error // nil for nil
}

// Migrate creates the schema and the tables, or brings them up to date, in one transaction. Any number of
// processes may call it at once. If there is nothing to do, it only reads. Tables of a newer version stay as they are.
func (s Set) Migrate(ctx context.Context, pool *sql.DB) error {
	version, err := pooled.Ask(ctx, pool, func(under db.DBTX) (int32, error) {
		do := s.Statements(under)
		if _, there, err := do.Installed(ctx, s.Schema); err != nil || !there {
			return 0, err
		}
		return do.Version(ctx)
	})
	if err != nil || int(version) >= len(s.Migrations) {
		return s.Explain("read the version of the tables", err)
	}
	// Read committed, to see what others committed before they gave up the lock.
	tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return s.Explain("migrate", err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if err := s.migrate(ctx, tx); err != nil {
		return s.Explain(fmt.Sprintf("migrate the schema %s", Quote(s.Schema)), err)
	}
	return s.Explain("migrate: commit", tx.Commit())
}

func (s Set) migrate(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, db.RollBackAndChain); err != nil {
		return err
	}
	do := s.Statements(tx)
	high, low := Lock(s.Schema)
	if err := do.Lock(ctx, high, low); err != nil {
		return err
	}
	hasSchema, hasTables, err := do.Installed(ctx, s.Schema)
	if err != nil {
		return err
	}
	if !hasSchema { // CREATE SCHEMA IF NOT EXISTS needs the privilege even if the schema exists
		if _, err := tx.ExecContext(ctx, "CREATE SCHEMA "+Quote(s.Schema)); err != nil {
			return err
		}
	}
	version := int32(0)
	if hasTables {
		if version, err = do.Version(ctx); err != nil {
			return err
		}
	}
	for version++; int(version) <= len(s.Migrations); version++ {
		if _, err := In(tx, s.Schema).ExecContext(ctx, s.Migrations[version-1]); err != nil {
			return fmt.Errorf("version %d: %w", version, err)
		}
		if err := do.RecordVersion(ctx, version); err != nil {
			return err
		}
	}
	return nil
}

// Lock is the key of the lock under which a schema is migrated, in the space of two integers, which no election
// uses. All add-ons have the same one, because each may create the schema. docs/protocol.md has the key.
func Lock(schema string) (high, low int32) {
	sum := sha256.Sum256([]byte("pgelector roster: " + schema))
	return int32(binary.BigEndian.Uint32(sum[0:4])), int32(binary.BigEndian.Uint32(sum[4:8]))
}
