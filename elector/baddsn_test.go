package elector_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// sql.Open does not read the connection string, so each attempt would fail, after one line in the log.
func TestAConnectionStringThatCannotBeReadEndsRunAtOnce(t *testing.T) {
	pool, err := sql.Open("pgx", "postgres://app:hunter2@db:port/app")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var failures []hooks.Failure
	hook := hooks.Funcs{Error: func(_ context.Context, f hooks.Failure) { failures = append(failures, f) }}
	e, err := elector.New(pool, "orders", elector.WithHooks(hook))
	if err != nil {
		t.Fatal(err)
	}
	err = e.Run(t.Context(), func(context.Context, *elector.Term) error { return nil })
	if !errors.Is(err, elector.ErrConfig) || !strings.Contains(err.Error(), "cannot read the connection string: correct it") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Run returned %v", err)
	}
	if len(failures) != 1 || !failures[0].Permanent {
		t.Errorf("the hooks were told %+v", failures)
	}
	session, err := elector.NewSession(pool)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(t.Context())
	shared, err := session.Elector("orders")
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Run(t.Context(), func(context.Context, *elector.Term) error { return nil }); !errors.Is(err, elector.ErrConfig) {
		t.Errorf("Run on a session returned %v", err)
	}
}
