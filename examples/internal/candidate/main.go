// Command candidate is a process of the tests, which they kill:
//
//	candidate WORK DRIVER ID LOAD
//
// LOAD is how long a cache takes to load. WORK is warm, outbox, http or ticks.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/examples"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/ticks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, work, driver, id, load string) error {
	pool, err := sql.Open(driver, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	retry := 50 * time.Millisecond
	if work == "warm" {
		retry = 2 * time.Second // the deputy is quicker
	}
	newElector := func(hook ...hooks.Hook) (*elector.Elector, error) {
		return elector.New(pool, "example", elector.WithCandidateID(id), elector.WithRetryInterval(retry), elector.WithHooks(hook...))
	}
	switch work {
	case "warm":
		return warm(ctx, load, newElector)
	case "outbox":
		e, err := newElector()
		if err != nil {
			return err
		}
		publish := func(ctx context.Context, tx *sql.Tx, m examples.Message) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO published (id, body, by) VALUES ($1, $2, $3)", m.ID, m.Body, id)
			return err
		}
		return e.Run(ctx, examples.Outbox{Pool: pool, Publish: publish, Interval: time.Millisecond, Timeout: time.Minute, Pause: time.Second, Tries: 8}.Lead)
	case "http":
		return serve(ctx, pool, newElector, id)
	}
	e, err := elector.New(pool, "example", elector.WithCandidateID(id), elector.WithRetryInterval(retry), elector.WithLease(4*time.Second)) // freezes are waited for
	if err != nil {
		return err
	}
	return doTicks(ctx, pool, e, id)
}

// doTicks writes a row for each tick.
func doTicks(ctx context.Context, pool *sql.DB, e *elector.Elector, id string) error {
	opts := []ticks.Option{ticks.WithPause(10*time.Millisecond, time.Second)} // a kill in a try holds up the next ticks for so long
	nightly, err := examples.Nightly(ctx, pool, "example", every(40*time.Millisecond), func(ctx context.Context, tx *sql.Tx, at time.Time) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO done (at, by) VALUES ($1, $2)", at, id)
		return err
	}, opts...)
	if err != nil {
		return err
	}
	return e.Run(ctx, nightly.Lead)
}

// every is a schedule that is quicker than cron's.
type every time.Duration

func (e every) Next(t time.Time) time.Time { return t.Truncate(time.Duration(e)).Add(time.Duration(e)) }

// warm loads a cache for that long, and says when it has done its first useful work.
func warm(ctx context.Context, takes string, newElector func(...hooks.Hook) (*elector.Elector, error)) error {
	load, err := time.ParseDuration(takes)
	if err != nil {
		return err
	}
	w := &examples.Warm[string]{Load: func(ctx context.Context) (string, error) {
		fmt.Println("loading")
		select {
		case <-time.After(load):
			fmt.Println("loaded")
			return "cache", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}}
	e, err := newElector(hooks.Join(w, hooks.Funcs{Campaign: func(_ context.Context, c hooks.Campaign) {
		if c.Outcome == hooks.Busy && !c.Deputy {
			fmt.Println("following")
		}
	}}))
	if err != nil {
		return err
	}
	return w.Run(ctx, e, func(ctx context.Context, _ *elector.Term, _ string) error {
		fmt.Println("working")
		<-ctx.Done()
		return nil
	})
}

// serve serves /work on the leader, and /readyz everywhere. The roster has the address, which is also the id of the test.
func serve(ctx context.Context, pool *sql.DB, newElector func(...hooks.Hook) (*elector.Elector, error), id string) error {
	e, err := newElector()
	if err != nil {
		return err
	}
	candidates, err := roster.New(pool, roster.WithMetadata(map[string]string{"url": "http://" + id}))
	if err != nil {
		return err
	}
	if err := candidates.Migrate(ctx); err != nil {
		return err
	}
	if err := candidates.Add(e); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/work", examples.LeaderOnly(e, examples.RosterAddress(candidates, e),
		func(w http.ResponseWriter, _ *http.Request, term *elector.Term) { fmt.Fprintln(w, id, term.Token()) }))
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Addr: id, Handler: mux}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	go func() {
		failed <- e.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			return nil
		})
	}()
	return <-failed
}
