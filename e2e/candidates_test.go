//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// leadMany makes the process a candidate of many elections, on one session. It
// ends as a service would: by closing the session.
func leadMany(ctx context.Context, s settings, pool *sql.DB, tell func(entry)) (exit int) {
	session, err := elector.NewSession(pool, s.options()...)
	if err != nil {
		return complain(err)
	}
	var all sync.WaitGroup
	for i := range s.Elections {
		number := fmt.Sprint(i)
		e, err := session.Elector(electionOf(s.Election, i), elector.WithHooks(hooks.Funcs{
			Elected: func(_ context.Context, e hooks.Elected) {
				tell(entry{Kind: elected, Election: number, Token: e.Token, From: e.At.UnixNano()})
			},
			Demoted: func(_ context.Context, e hooks.Demoted) {
				tell(entry{Kind: demoted, Election: number, Token: e.Token, From: e.At.UnixNano(), Text: string(e.Reason)})
			},
		}))
		if err != nil {
			return complain(err)
		}
		all.Go(func() { _ = e.Run(context.Background(), nil) })
	}
	tell(entry{Kind: ready})
	<-ctx.Done()
	if err := session.Close(context.Background()); err != nil {
		return complain(err)
	}
	all.Wait()
	return 0
}

// electionOf is the name of the i-th election of a session.
func electionOf(name string, i int) string { return fmt.Sprintf("%s-%d", name, i) }
