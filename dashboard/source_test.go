package dashboard

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/roster"
)

// keys matches a JSON array with that many keys.
type keys int

func (n keys) Match(v driver.Value) bool {
	var all []int64
	text, _ := v.(string)
	return json.Unmarshal([]byte(text), &all) == nil && len(all) == int(n)
}

func TestOnlyTermsThatWillBeShownAreAskedFor(t *testing.T) {
	for _, c := range []struct{ elections, asked int }{{0, 0}, {3, 3}, {maxElections + 50, maxElections}} {
		pool, mock, err := sqlmock.New()
		if err != nil {
			t.Fatal(err)
		}
		mock.ExpectQuery("-- name: Ping").WillReturnRows(sqlmock.NewRows([]string{"pid", "in_recovery"}).AddRow(1, false))
		mock.ExpectQuery("-- name: Clock").WillReturnRows(sqlmock.NewRows([]string{"micros"}).AddRow(1))
		mock.ExpectQuery("-- name: AdvisoryLocks").WillReturnRows(sqlmock.NewRows([]string{"key"}))
		candidates := sqlmock.NewRows([]string{"key", "election", "candidate_id", "version", "health", "metadata", "since_micros", "published_micros", "left_micros", "live", "leads", "deputy"})
		for i := range c.elections {
			candidates.AddRow(i, fmt.Sprint(i), "one", "", nil, "{}", time.Now().UnixMicro(), time.Now().UnixMicro(), 0, true, false, false)
		}
		mock.ExpectQuery("-- name: Candidates").WithArgs("[]").WillReturnRows(candidates)
		if c.asked > 0 {
			mock.ExpectQuery("-- name: Terms").WithArgs(keys(c.asked), maxTerms).WillReturnRows(sqlmock.NewRows([]string{"key"}))
		}
		r, err := roster.New(pool)
		if err != nil {
			t.Fatal(err)
		}
		f, err := source{pool: pool, roster: r}.look(t.Context())
		if err != nil || f.rosterErr != nil || len(f.candidates) != c.elections {
			t.Errorf("%d elections: got %d candidates, %v, %v", c.elections, len(f.candidates), err, f.rosterErr)
		}
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		pool.Close()
	}
}
