//go:build linux

package main

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
)

// connection is what came of a new connection over a route.
type connection struct {
	began, answered history.Time
	toPrimary       bool
}

// watchRoute makes new connections all the time, as the DSN says, and asks whether they
// lead to a primary. One that hangs does not hold up the next. When stop returns, the
// log has when the route led to a primary.
func watchRoute(ctx context.Context, log *history.Log, route fleet.Route, dsn string) (stop func()) {
	var all []*connection
	var attempts sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, reaching) == nil {
			one := &connection{began: history.Now()}
			all = append(all, one)
			attempts.Go(func() {
				one.toPrimary = leadsToPrimary(ctx, dsn)
				one.answered = history.Now()
			})
		}
		attempts.Wait()
	}()
	return func() {
		cancel()
		<-done
		for _, s := range reached(all) {
			log.Add(history.Event{Kind: history.Reached, Text: string(route), At: s.from, Took: s.to.Sub(s.from)})
		}
	}
}

func leadsToPrimary(ctx context.Context, dsn string) (primary bool) {
	ctx, cancel := context.WithTimeout(ctx, fleet.Lease)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return false
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT NOT pg_is_in_recovery()").Scan(&primary)
	return primary && err == nil
}

// reached returns when the route led to a primary: while each connection after the other
// did, from the first answer on, until the last of them began.
func reached(all []*connection) (stretches []stretch) {
	for i := 0; i < len(all); i++ {
		if !all[i].toPrimary {
			continue
		}
		s := stretch{all[i].answered, all[i].began}
		for ; i < len(all) && all[i].toPrimary; i++ {
			s = stretch{min(s.from, all[i].answered), all[i].began}
		}
		if s.from < s.to {
			stretches = append(stretches, s)
		}
	}
	return stretches
}
