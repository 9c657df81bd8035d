package dashboard

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/roster"
)

// facts are the result of one look at the server.
type facts struct {
	at         time.Time // on the server's clock; zero before the first look
	seen       time.Time // on this process's clock
	locks      []db.AdvisoryLocksRow
	candidates []roster.Candidate
	terms      []roster.Term
	rosterErr  error // why the roster could not be read
}

// source looks at the server.
type source struct {
	pool   *sql.DB
	roster *roster.Roster
	names  []string
	groups []shards
}

// maxStuck returns how many connections may be stuck: half of the pool's.
func (s source) maxStuck() int {
	if most := s.pool.Stats().MaxOpenConnections; most > 0 {
		return min(max(most/2, 1), maxStuckLooks)
	}
	return maxStuckLooks
}

// look asks the server. A roster that cannot be read is no failure: the server knows who
// leads.
func (s source) look(ctx context.Context) (facts, error) {
	f, err := pooled.Ask(ctx, s.pool, func(q db.DBTX) (facts, error) { return ask(ctx, db.New(q)) })
	if err != nil || s.roster == nil {
		return f, err
	}
	if f.candidates, f.rosterErr = s.roster.Candidates(ctx); f.rosterErr != nil {
		return f, nil
	}
	all, _ := group(f.withoutShards(s.groups), s.names, true)
	var keys []int64
	for _, g := range all {
		keys = append(keys, g.key)
	}
	if len(keys) > 0 {
		f.terms, f.rosterErr = s.roster.Terms(ctx, min(maxTerms, max(maxTermsInAll/len(keys), 1)), keys...)
	}
	return f, nil
}

func ask(ctx context.Context, q *db.Queries) (f facts, err error) {
	ping, err := q.Ping(ctx)
	if err != nil {
		return f, fmt.Errorf("ask the server: %w", err)
	}
	if ping.InRecovery {
		return f, elector.ErrServerReadOnly
	}
	micros, err := q.Clock(ctx)
	if err != nil {
		return f, fmt.Errorf("ask for the server's time: %w", err)
	}
	f.at = time.UnixMicro(micros)
	if f.locks, err = q.AdvisoryLocks(ctx); err != nil {
		return facts{}, fmt.Errorf("ask who leads: %w", err)
	}
	return f, nil
}
