//go:build unix

package examples_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/examples"
	"github.com/pgelector/pgelector/shard"
)

func TestWorkersDoEachJobOnceAndInOrderWhileMembersChange(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		execute(t, pool, examples.JobTable)
		execute(t, pool, "CREATE TABLE finished (place bigint GENERATED ALWAYS AS IDENTITY, job bigint, by text)")
		partitions := shard.Numbers(6)
		worker := func(id string) (stop func() error) {
			return inBackground(t, func(ctx context.Context) error {
				return examples.Work(ctx, pool, partitions, func(ctx context.Context, tx *sql.Tx, job int64) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO finished (job, by) VALUES ($1, $2)", job, id)
					return err
				}, shard.WithSession(elector.WithCandidateID(id)))
			})
		}
		jobs := 0
		add := func() {
			for range 60 {
				execute(t, pool, fmt.Sprintf("INSERT INTO jobs (partition) VALUES ('%d')", jobs%6))
				jobs++
			}
		}
		finished := func(what string) {
			t.Helper()
			for deadline := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
				var n int
				check(t, pool.QueryRow("SELECT count(*) FROM jobs WHERE done").Scan(&n))
				if n == jobs {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("%s: %d of %d jobs are done within %v", what, n, jobs, timeout)
				}
			}
		}
		stops := []func() error{worker("a"), worker("b")}
		add()
		finished("two workers")
		stops = append(stops, worker("c"))
		add()
		finished("a third joins")
		check(t, stops[0]())
		add()
		finished("one leaves")
		for _, stop := range stops[1:] {
			check(t, stop())
		}
		var twice, disordered int
		check(t, pool.QueryRow("SELECT count(*) - count(DISTINCT job) FROM finished").Scan(&twice))
		check(t, pool.QueryRow(`SELECT count(*) FROM finished f JOIN jobs fj ON fj.id = f.job JOIN finished g ON g.place > f.place
			JOIN jobs gj ON gj.id = g.job AND gj.partition = fj.partition WHERE g.job < f.job`).Scan(&disordered))
		if twice > 0 || disordered > 0 {
			t.Errorf("%d jobs were done twice, %d out of order", twice, disordered)
		}
	})
}
