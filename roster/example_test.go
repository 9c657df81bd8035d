package roster_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
)

// openPool stands in for sql.Open with lib/pq or pgx. Its tables hold two terms.
func openPool() *sql.DB {
	pool, mock, err := sqlmock.New()
	if err != nil {
		log.Fatal(err)
	}
	mock.ExpectBegin()
	mock.ExpectQuery("-- name: Installed").WillReturnRows(sqlmock.NewRows([]string{"has_schema", "has_roster"}).AddRow(true, true))
	mock.ExpectQuery("-- name: Version").WillReturnRows(sqlmock.NewRows([]string{"version"}).AddRow(3))
	mock.ExpectRollback()
	began := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	columns := []string{"key", "election", "token", "candidate_id", "elected_micros", "ended_micros", "reason", "error"}
	mock.ExpectBegin()
	mock.ExpectQuery("-- name: Terms").WillReturnRows(sqlmock.NewRows(columns).
		AddRow(1, "orders", 912, "web-2", began.Add(4*time.Hour).UnixMicro(), 0, "", "").
		AddRow(1, "orders", 745, "web-1", began.UnixMicro(), began.Add(4*time.Hour).UnixMicro(), "lost", ""))
	mock.ExpectRollback()
	return pool
}

// Who led last night?
func ExampleRoster_Terms() {
	pool := openPool() // sql.Open("pgx", dsn)
	defer pool.Close()
	ctx := context.Background()

	candidates, err := roster.New(pool)
	if err != nil {
		log.Fatal(err)
	}
	if err := candidates.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	terms, err := candidates.Terms(ctx, 10, elector.KeyFromName("orders"))
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range terms {
		if t.Reason == "" {
			fmt.Println(t.CandidateID, "leads with token", t.Token)
			continue
		}
		fmt.Println(t.CandidateID, "led for", t.EndedAt.Sub(t.ElectedAt), "until it was", t.Reason)
	}
	// Output:
	// web-2 leads with token 912
	// web-1 led for 4h0m0s until it was lost
}
