package elector_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/roster"
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

// lib/pq has no type for such an error, and its text repeats the string, or a part of it.
func TestNoErrorRepeatsAConnectionStringThatCannotBeRead(t *testing.T) {
	for _, driver := range []string{"postgres", "pgx"} {
		for _, dsn := range []string{"postgres://app:hunter2@db:port/app", "postgres://app:hunter2%zz@db/app", "host=db password=my hunter2",
			"host=db password='hunter2", "hunter2://app@db", "host=db port=abc password=hunter2"} {
			pool, err := sql.Open(driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			e, err := elector.New(pool, "orders")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			if err := e.Run(ctx, func(context.Context, *elector.Term) error { return nil }); !errors.Is(err, elector.ErrConfig) {
				t.Errorf("over %s, of %s: Run returned %v", driver, dsn, err)
			}
			r, err := roster.New(pool)
			if err != nil {
				t.Fatal(err)
			}
			calls := map[string]error{"Migrate": r.Migrate(ctx)}
			_, calls["Leader"] = e.Leader(ctx)
			_, calls["Candidates"] = e.Candidates(ctx)
			_, calls["RequestResign"] = elector.RequestResign(ctx, pool, "orders")
			_, _, calls["TryCampaign"] = e.TryCampaign(ctx)
			for call, err := range calls {
				if err == nil || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("over %s, of %s: %s returned %v", driver, dsn, call, err)
				}
			}
		}
	}
}
