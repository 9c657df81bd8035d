package electortest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// Close returns when all is over: its electors can be asked again at once, and say
// that they are stopped, not that they are busy.
func TestAfterCloseTheElectorsOfASessionAreFree(t *testing.T) {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open()
	defer pool.Close()
	for range 300 {
		session, err := elector.NewSession(pool, elector.WithDrain(0)) // for Campaign has no work here that Close should wait for
		if err != nil {
			t.Fatal(err)
		}
		e, err := session.Elector("orders")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := session.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Campaign(t.Context()); !errors.Is(err, elector.ErrStopped) {
			t.Fatalf("got %v, want %v", err, elector.ErrStopped)
		}
	}
}
