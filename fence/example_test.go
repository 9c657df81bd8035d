package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/pgelector/pgelector/fence"
)

// store is the database that the leader writes to.
var store *sql.DB

// Once: store.Exec(fence.CreateTable).
func ExampleAdvance() {
	write := func(ctx context.Context, token int64) error {
		tx, err := store.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fence.Advance(ctx, tx, "reports", token); err != nil {
			return err // it wraps fence.ErrStale if a later leader has written
		}
		// … the writes of the term, in the same transaction …
		return tx.Commit()
	}
	_ = write
}

// The table has a column for the token: lamp (color text, token bigint NOT NULL DEFAULT 0).
func ExampleApplied() {
	paint := func(color string, token int64) error {
		return fence.Applied(store.Exec("UPDATE lamp SET color = $1, token = $2 WHERE token <= $2", color, token))
	}
	_ = paint
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

// Each request of a term carries its token, and a later leader's store refuses the earlier ones.
func ExampleTransport() {
	service := httptest.NewServer(fence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path, "with token", r.Header.Get(fence.Header))
	}), nil, nil))
	defer service.Close()

	for _, token := range []int64{8, 7} { // term.Token() of a leader, and of the one before
		client := &http.Client{Transport: fence.Transport(nil, token)}
		response, err := client.Get(service.URL + "/lamp")
		if errors.Is(err, fence.ErrStale) {
			fmt.Println("token", token, "is stale")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		_ = response.Body.Close()
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	// Output:
	// GET /lamp with token 8
	// token 7 is stale
}
