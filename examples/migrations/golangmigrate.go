package migrations

import (
	"context"
	"database/sql"
	"errors"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/source"
)

// Up runs all migrations of golang-migrate that are left, under the lock. If the term or ctx
// ends, it stops before the next one. golang-migrate marks a migration that did not end as
// dirty, and refuses all others: look what it did, and then call Force.
func (l *Lock) Up(ctx context.Context, pool *sql.DB, from source.Driver) (err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := l.SessionLock(ctx, conn); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.SessionUnlock(ctx, conn)) }()
	driver, err := postgres.WithConnection(ctx, conn, &postgres.Config{}) // of any driver of database/sql
	if err != nil {
		return err
	}
	m, err := migrate.NewWithInstance("source", from, "postgres", driver)
	if err != nil {
		return err
	}
	stop := func() {
		select {
		case m.GracefulStop <- true:
		default:
		}
	}
	defer context.AfterFunc(ctx, stop)()
	defer context.AfterFunc(l.term.Context(), stop)()
	if err := m.Up(); !errors.Is(err, migrate.ErrNoChange) {
		return err
	}
	return nil
}
