package migrations

import (
	"database/sql"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

var (
	_ lock.SessionLocker = (*Lock)(nil)
	_ lock.Locker        = (*Lock)(nil)
)

// Goose makes a provider of goose whose migrations run under the lock. Call its method Up when
// the program starts.
func Goose(pool *sql.DB, files fs.FS, l *Lock) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, pool, files, goose.WithSessionLocker(l))
}
