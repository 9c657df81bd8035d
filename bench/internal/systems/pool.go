package systems

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"
)

// The drivers' names, as database/sql knows them.
const (
	pgx = "pgx"
	pq  = "postgres"
)

// open opens a pool that keeps what it has opened, as a program with traffic would.
func open(driver, dsn string) (*sql.DB, error) {
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	pool.SetMaxIdleConns(4)
	return pool, nil
}

// lockKey is an advisory lock key of an election's own.
func lockKey(election string) int64 {
	h := fnv.New64a()
	h.Write([]byte(election))
	return int64(h.Sum64() >> 1)
}

// names are the elections of a candidate.
func names(env Env) []string {
	if env.Elections <= 1 {
		return []string{env.Election}
	}
	all := make([]string, env.Elections)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", env.Election, i)
	}
	return all
}

// resigned waits for the order to resign, and says when it came.
func resigned(ctx context.Context, env Env, lost <-chan struct{}, out *Reporter) bool {
	select {
	case <-env.Resign:
		out.Emit(Resigning)
		return true
	case <-lost:
	case <-ctx.Done():
	}
	return false
}
