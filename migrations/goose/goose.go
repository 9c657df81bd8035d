// Package goosemigrations runs the migrations of goose in one process at a time, under a [migrations.Lock].
package goosemigrations

import (
	"database/sql"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/pgelector/pgelector/migrations"
)

// A Lock is a lock of both kinds.
var (
	_ lock.SessionLocker = (*migrations.Lock)(nil)
	_ lock.Locker        = (*migrations.Lock)(nil)
)

// NewProvider makes a provider of goose whose migrations run under the lock. Call its method Up when
// the program starts. pool is of the database of the lock. A provider that is stopped, or loses its connection, returns an
// error ([goose.PartialError]), which names the version. Then look at what that migration did, and at goose_db_version:
// goose begins a version that is missing there from its start, when Up is called again.
//
// Behind a transaction pooler SessionLock returns an error: make a provider with goose.WithLocker(lock).
func NewProvider(pool *sql.DB, files fs.FS, lock *migrations.Lock, opts ...goose.ProviderOption) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, pool, files, append(opts[:len(opts):len(opts)], goose.WithSessionLocker(lock))...)
}
