// Command service is a whole service. Every replica takes orders; the leader sends them to a receiver, and reports at each
// tick. On SIGTERM it ends what it has begun. Copy errgroup.go, outbox.go, server.go, ticks.go and migrations/ with it.
//
//	DATABASE_URL, RECEIVER  the database, and where orders are posted
//	ADDRESS, REPORT         default :8080, and "0 3 * * *" in UTC
package main

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/robfig/cron/v3"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/examples"
	"github.com/pgelector/pgelector/examples/migrations"
	"github.com/pgelector/pgelector/health"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
	sloghooks "github.com/pgelector/pgelector/hooks/slog"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/ticks"
)

//go:embed migrations/*.sql
var files embed.FS

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("the service failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	pool, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close() // after all that uses it
	pool.SetMaxOpenConns(20)
	steps, _ := fs.Sub(files, "migrations") // it is a directory
	if _, err := migrations.Goose(ctx, pool, steps); err != nil {
		return err
	}
	metrics := prometheushooks.New()
	e, err := elector.New(pool, "service", elector.WithHooks(metrics, sloghooks.New(nil)))
	if err != nil {
		return err
	}
	replicas, err := roster.New(pool)
	monitor, unmade := health.New(pool)
	if err := errors.Join(err, unmade); err != nil {
		return err
	}
	defer func() { _ = replicas.Close(context.WithoutCancel(ctx)) }() // this replica shows as left
	if err := errors.Join(replicas.Migrate(ctx), replicas.Add(e), monitor.Add(e), prometheus.Register(metrics)); err != nil {
		return err
	}
	schedule, err := cron.ParseStandard(cmp.Or(os.Getenv("REPORT"), "0 3 * * *"))
	if err != nil {
		return err
	}
	reports, err := examples.Nightly(ctx, pool, "report", schedule, report, ticks.WithCounter(metrics.Ticks))
	if err != nil {
		return err
	}
	outbox := examples.Outbox{Pool: pool, Publish: send, Interval: time.Second, Timeout: 5 * time.Second, Pause: time.Second, Tries: 8}
	return examples.Serve(ctx, e, serve(pool, monitor), func(ctx context.Context, term *elector.Term) error {
		return examples.LeadTasks(func(ctx context.Context) error { return outbox.Lead(ctx, term) },
			func(ctx context.Context) error { return reports.Lead(ctx, term) })(ctx, term)
	})
}

// serve takes orders until ctx ends, and then ends the requests that have begun.
func serve(pool *sql.DB, monitor *health.Monitor) examples.Task {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		if err := order(r.Context(), pool, r.FormValue("item")); err != nil {
			slog.ErrorContext(r.Context(), "no order", "error", err)
			http.Error(w, "try again", http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Addr: cmp.Or(os.Getenv("ADDRESS"), ":8080"), Handler: examples.WithProbes(mux, monitor), ReadHeaderTimeout: 10 * time.Second}
	return func(ctx context.Context) error {
		failed := make(chan error, 1)
		go func() { failed <- server.ListenAndServe() }()
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			return server.Shutdown(ctx)
		}
	}
}

// order writes an order and its message in one transaction: both or neither.
func order(ctx context.Context, pool *sql.DB, item string) error {
	_, err := pool.ExecContext(ctx, `WITH o AS (INSERT INTO orders (item) VALUES ($1) RETURNING item) INSERT INTO outbox (body) SELECT item FROM o`, item)
	return err
}

// send posts a message. The receiver ignores an Idempotency-Key that it knows. A redirect is not followed: it becomes a GET.
func send(ctx context.Context, _ *sql.Tx, m examples.Message) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("RECEIVER"), strings.NewReader(m.Body))
	if err != nil {
		return err
	}
	r.Header.Set("Idempotency-Key", strconv.FormatInt(m.ID, 10))
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("%w: %w", examples.ErrUnavailable, err)
	}
	_ = answer.Body.Close()
	switch code := answer.StatusCode; {
	case code < 300:
		return nil
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests:
		return errors.New("refused: " + answer.Status)
	}
	return fmt.Errorf("%w: %s", examples.ErrUnavailable, answer.Status)
}

// report counts the orders before a tick.
func report(ctx context.Context, tx *sql.Tx, at time.Time) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO reports (at, orders) SELECT $1, count(*) FROM orders WHERE made < $1", at)
	return err
}
