package dashboard_test

import (
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/dashboard"
	"github.com/pgelector/pgelector/elector"
)

// openPool stands in for sql.Open with lib/pq or pgx. web-1 leads the election "orders".
func openPool() *sql.DB {
	pool, mock, err := sqlmock.New()
	if err != nil {
		log.Fatal(err)
	}
	mock.ExpectBegin()
	mock.ExpectQuery("-- name: Ping").WillReturnRows(sqlmock.NewRows([]string{"pid", "in_recovery", "rung"}).AddRow(4711, false, false))
	mock.ExpectQuery("-- name: Clock").WillReturnRows(sqlmock.NewRows([]string{"micros"}).AddRow(1795262400_000000))
	mock.ExpectQuery("-- name: AdvisoryLocks").WillReturnRows(sqlmock.NewRows([]string{
		"key", "granted", "deputy", "pid", "application_name", "usename", "client_addr", "connected_micros", "waiting_micros", "last_micros",
		"lease_millis", "since_micros", "in_transaction", "priority", "blocks", "prepared"}).
		AddRow(elector.KeyFromName("orders"), true, false, 4712, "web-1", "orders_service", "10.0.4.11", 0, 0, 0, 10_000, 0, false, 0, "", ""))
	mock.ExpectRollback()
	return pool
}

// The page is a handler. Without a roster it shows who leads and who is the deputy.
func ExampleNew() {
	pool := openPool() // sql.Open("pgx", dsn)
	defer pool.Close()

	page, err := dashboard.New(pool, dashboard.WithElections("orders", "billing"))
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/elections", page) // behind your login

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest("GET", "/admin/elections", nil))
	fmt.Println(answer.Code, strings.Contains(answer.Body.String(), "led by web-1"))
	// Output: 200 true
}
