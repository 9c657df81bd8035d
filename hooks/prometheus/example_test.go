package prometheushooks_test

import (
	"context"
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	prometheushooks "github.com/pgelector/pgelector/hooks/prometheus"
)

func ExampleNew() {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open() // sql.Open("pgx", dsn)
	defer pool.Close()
	ctx := context.Background()

	hook := prometheushooks.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(hook)    // serve it with promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	elected := make(chan struct{}) // closed when the hook before it has counted the election
	e, err := elector.New(pool, "orders", elector.WithHooks(hook, hooks.Funcs{Elected: func(context.Context, hooks.Elected) { close(elected) }}))
	if err != nil {
		log.Fatal(err)
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer term.Resign(ctx)
	<-elected

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "pgelector_leader" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output: pgelector_leader 1
}
