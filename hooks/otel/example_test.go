package otelhooks_test

import (
	"context"
	"fmt"
	"log"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	otelhooks "github.com/pgelector/pgelector/hooks/otel"
)

// The spans of the work link to the span of the term.
func Example() {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open() // sql.Open("pgx", dsn)
	defer pool.Close()

	// In a program: the providers of the OpenTelemetry SDK.
	meters, tracers := metricnoop.NewMeterProvider(), tracenoop.NewTracerProvider()
	hook, err := otelhooks.New(meters, tracers)
	if err != nil {
		log.Fatal(err)
	}
	e, err := elector.New(pool, "orders", elector.WithHooks(hook))
	if err != nil {
		log.Fatal(err)
	}
	tracer := tracers.Tracer("orders")
	err = e.Run(context.Background(), func(ctx context.Context, term *elector.Term) error {
		ctx = hook.WithTerm(ctx, e.Election(), term.Token())
		_, span := tracer.Start(ctx, "publish", otelhooks.Link(ctx))
		defer span.End()
		fmt.Println("publishing")
		return nil
	})
	fmt.Println(err)
	// Output:
	// publishing
	// <nil>
}
