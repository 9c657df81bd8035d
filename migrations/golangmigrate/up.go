// Package golangmigrate runs the migrations of golang-migrate in one process at a time, under a [migrations.Lock].
package golangmigrate

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/source"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/migrations"
)

// Up runs all migrations that are left, under the lock, one at a time. It returns
// nil only if the last version of from is that of the database, and not dirty. pool is of the database of the lock.
//
// If ctx ends, Up finishes the migration that runs, and begins no other. If the term was lost while a
// migration ran, Up returns an error even if the migration has ended. golang-migrate marks a migration
// that did not end as dirty, and Up then refuses to go on: look at what that migration did, mend
// the schema, and call Force. An error names the version. Up does nothing again by itself.
//
// Up waits for a program that holds golang-migrate's own lock, such as an older version of yours. It closes the connection
// on which it has migrated, because a migration may have left settings there.
func Up(ctx context.Context, pool *sql.DB, from source.Driver, lock *migrations.Lock) (err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer migrations.Discard(conn)
	if err := lock.SessionLock(ctx, conn); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.SessionUnlock(ctx, conn)) }()
	config, err := lockOwn(ctx, conn, lock.Term())
	if err != nil {
		return err
	}
	to, err := postgres.WithConnection(ctx, conn, config) // of any driver of database/sql
	if err != nil {
		return err
	}
	versions, err := versionsOf(from)
	if err != nil {
		return err
	}
	m, err := migrate.NewWithInstance("source", from, "postgres", &drained{Driver: to})
	if err != nil {
		return err
	}
	for {
		next, done, err := pending(versions, to)
		if done || err != nil {
			return err
		}
		if stopped := cmp.Or(context.Cause(ctx), context.Cause(lock.Term().Context())); stopped != nil {
			return fmt.Errorf("migrations: stopped before version %d, which is not applied: %w", next, stopped)
		}
		if err := m.Steps(1); err != nil {
			return fmt.Errorf("migrations: version %d: %w; look at what it did and at schema_migrations: if it is dirty, mend the schema and call Force", next, err)
		}
		if err := verify(ctx, lock.Term()); err != nil {
			return fmt.Errorf("migrations: version %d has ended, but the term was lost while it ran, or cannot be verified; look at schema_migrations before you go on: %w", next, err)
		}
	}
}

// lockOwn takes golang-migrate's own lock, which golang-migrate then takes again: locks nest. Its own statement would wait for
// ever, whatever ctx says, with a snapshot for which CREATE INDEX CONCURRENTLY waits. The lock ends with the connection.
func lockOwn(ctx context.Context, conn *sql.Conn, term *elector.Term) (*postgres.Config, error) {
	var name string
	var schema sql.NullString
	err := conn.QueryRowContext(ctx, "SELECT pg_catalog.current_database(), pg_catalog.current_schema()").Scan(&name, &schema)
	if err == nil && !schema.Valid {
		err = postgres.ErrNoSchema
	}
	if err != nil {
		return nil, fmt.Errorf("migrations: find the schema: %w", err)
	}
	key, err := database.GenerateAdvisoryLockId(name, schema.String, postgres.DefaultMigrationsTable)
	if err != nil {
		return nil, err
	}
	for taken := false; ; {
		if err := conn.QueryRowContext(ctx, "SELECT pg_catalog.pg_try_advisory_lock($1::pg_catalog.text::pg_catalog.int8)", key).Scan(&taken); err != nil {
			return nil, fmt.Errorf("migrations: take golang-migrate's own lock: %w", err)
		}
		if taken {
			return &postgres.Config{DatabaseName: name, SchemaName: schema.String}, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		case <-term.Context().Done():
		}
		if stopped := cmp.Or(context.Cause(ctx), context.Cause(term.Context())); stopped != nil {
			return nil, fmt.Errorf("migrations: stopped, while another program held golang-migrate's own lock: %w", stopped)
		}
	}
}

// verify asks the server whether this process still leads, also when ctx has ended.
func verify(ctx context.Context, term *elector.Term) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return term.Verify(ctx)
}

// versionsOf lists the versions of a source, in order.
func versionsOf(from source.Driver) (versions []uint, err error) {
	version, err := from.First()
	for ; err == nil; version, err = from.Next(version) {
		versions = append(versions, version)
	}
	switch {
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("migrations: read the source: %w", err)
	case len(versions) == 0:
		return nil, errors.New("migrations: the source has no migrations")
	}
	return versions, nil
}

// pending returns the version that is to be applied next. done is true if the database has the last one.
func pending(versions []uint, to database.Driver) (next uint, done bool, err error) {
	current, dirty, err := to.Version()
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("migrations: read the version of the database: %w", err)
	case dirty:
		return 0, false, fmt.Errorf("migrations: version %d did not end; look at what it did, mend the schema, and call Force: %w", current, migrate.ErrDirty{Version: current})
	case current == database.NilVersion:
		return versions[0], false, nil
	}
	at := slices.Index(versions, uint(current))
	switch {
	case at < 0:
		return 0, false, fmt.Errorf("migrations: the database has version %d, which the source lacks; is this program older than the database?", current)
	case at == len(versions)-1:
		return 0, true, nil
	}
	return versions[at+1], false, nil
}

// drained reads every migration to its end. If SetVersion fails, golang-migrate never reads the
// migration, and the goroutine that writes it would wait for ever. So SetVersion keeps the error for Run.
type drained struct {
	database.Driver
	failed error
}

func (d *drained) SetVersion(version int, dirty bool) error {
	if dirty {
		d.failed = d.Driver.SetVersion(version, dirty)
		return nil
	}
	if d.failed != nil { // a migration without a body does not run
		return d.failed
	}
	return d.Driver.SetVersion(version, dirty)
}

func (d *drained) Run(migration io.Reader) error {
	if d.failed != nil {
		_, _ = io.Copy(io.Discard, migration)
		return d.failed
	}
	return d.Driver.Run(migration)
}
