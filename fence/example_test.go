//go:build unix

package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/pgelector/pgelector/fence"
	"github.com/pgelector/pgelector/internal/pgcluster"
)

// openStore opens a database of its own, for an example.
func openStore() (store *sql.DB, drop func()) {
	c := shared.Get(exampleRunner{})
	must(c.CreateDatabase(context.Background(), "example"))
	store, err := sql.Open("pgx", c.DSN(pgcluster.ForDatabase("example")))
	must(err)
	return store, func() {
		must(store.Close())
		must(c.Exec(context.Background(), "DROP DATABASE example WITH (FORCE)"))
	}
}

type exampleRunner struct{}

func (exampleRunner) Helper()           {}
func (exampleRunner) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func ExampleAdvance() {
	store, drop := openStore()
	defer drop()
	_, err := store.Exec(fence.CreateTable)
	must(err)

	write := func(token int64) error {
		tx, err := store.Begin()
		must(err)
		defer tx.Rollback()
		if err := fence.Advance(context.Background(), tx, "reports", token); err != nil {
			return err
		}
		// … what the term writes, in the same transaction …
		return tx.Commit()
	}
	fmt.Println("token 7:", write(7))
	fmt.Println("token 8, of the next leader:", write(8))
	fmt.Println("token 7, stale:", errors.Is(write(7), fence.ErrStale))
	// Output:
	// token 7: <nil>
	// token 8, of the next leader: <nil>
	// token 7, stale: true
}

func ExampleApplied() {
	store, drop := openStore()
	defer drop()
	_, err := store.Exec(`CREATE TABLE lamp (color text, token bigint NOT NULL DEFAULT 0); INSERT INTO lamp VALUES ('white')`)
	must(err)

	paint := func(color string, token int64) error {
		return fence.Applied(store.Exec("UPDATE lamp SET color = $1, token = $2 WHERE token <= $2", color, token))
	}
	fmt.Println(paint("red", 7), paint("green", 8), errors.Is(paint("red", 7), fence.ErrStale))
	// Output: <nil> <nil> true
}

func ExampleHandler() {
	color := "white"
	service := httptest.NewServer(fence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		color = r.FormValue("color")
	}), nil, nil))
	defer service.Close()

	paint := func(color string, token int64) error {
		client := &http.Client{Transport: fence.Transport(nil, token)} // one for each term
		response, err := client.Post(service.URL+"/lamp?color="+color, "", strings.NewReader(""))
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	fmt.Println(paint("red", 7), paint("green", 8), errors.Is(paint("red", 7), fence.ErrStale))
	fmt.Println(color)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	// Output:
	// <nil> <nil> true
	// green
}
