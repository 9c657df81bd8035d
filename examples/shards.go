package examples

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/shard"
)

// JobTable is the table of jobs. Each partition is worked on by one process, in order.
const JobTable = `CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, partition text NOT NULL, done boolean NOT NULL DEFAULT false)`

// Work shares out the partitions among all processes that call it. Each one does the jobs of
// its partitions. Every job is done in a transaction of the partition's term, so no other process does it
// too. It returns when ctx ends.
func Work(ctx context.Context, pool *sql.DB, partitions *shard.Set, do func(ctx context.Context, tx *sql.Tx, job int64) error, opts ...shard.Option) error {
	err := shard.Run(ctx, pool, "jobs", partitions, func(ctx context.Context, partition string, term *elector.Term) error {
		for ctx.Err() == nil {
			err := workOff(ctx, pool, term, partition, do)
			if errors.Is(err, errNoJob) {
				pause(ctx, 100*time.Millisecond)
			} else if err != nil {
				return err // to OnDemoted; the partition is led again a second later
			}
		}
		return nil
	}, opts...)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// errNoJob is private, so that no error of do is taken for it.
var errNoJob = errors.New("no job")

// workOff does the next job of a partition. The error is errNoJob if there is none.
func workOff(ctx context.Context, pool *sql.DB, term *elector.Term, partition string, do func(ctx context.Context, tx *sql.Tx, job int64) error) error {
	return term.InTx(ctx, pool, nil, func(tx *sql.Tx) error {
		var job int64
		err := tx.QueryRowContext(ctx, "SELECT id FROM jobs WHERE partition = $1 AND NOT done ORDER BY id LIMIT 1", partition).Scan(&job)
		if errors.Is(err, sql.ErrNoRows) {
			return errNoJob
		} else if err != nil {
			return err
		}
		if err := do(ctx, tx, job); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE jobs SET done = true WHERE id = $1", job)
		return err
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
