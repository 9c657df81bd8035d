package systems

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/pgelector/pgelector/elector"
)

const (
	forDefault = "One leader for a service that has PostgreSQL already. Polling pins no connection while following."
	forFast    = "The same, for those to whom a second without a leader matters: a parked connection per candidate, two more while leading."
	forSession = "Very many elections in one process. All of them share one connection and one fate: losing it ends every term."
)

// library is this library with one pool and one elector for each election.
func library(driver, name, settings, purpose string, quick []Fault, opts ...elector.Option) System {
	phase := 2 * time.Second // a heartbeat interval, which is longer than a retry interval
	if len(quick) > 0 {
		phase = 500 * time.Millisecond // nothing is polled
	}
	return System{
		Name: name, Settings: settings, For: purpose,
		Quick: quick,
		Phase: phase,
		Cap:   30 * time.Second,
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			pool, err := open(driver, env.DSN)
			if err != nil {
				return err
			}
			opts := append([]elector.Option{elector.WithCandidateID(env.ID)}, opts...)
			return elect(ctx, env, out, func(election string) (*elector.Elector, error) {
				return elector.New(pool, election, opts...)
			})
		},
	}
}

// shared is this library with all elections on one session.
func shared(driver, name, settings string, opts ...elector.SessionOption) System {
	return System{
		Name: name, Settings: settings, For: forSession,
		Phase: 2 * time.Second,
		Cap:   60 * time.Second,
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			pool, err := open(driver, env.DSN)
			if err != nil {
				return err
			}
			session, err := newSession(pool, env, opts)
			if err != nil {
				return err
			}
			return elect(ctx, env, out, func(election string) (*elector.Elector, error) {
				return session.Elector(election)
			})
		},
	}
}

func newSession(pool *sql.DB, env Env, opts []elector.SessionOption) (*elector.Session, error) {
	return elector.NewSession(pool, append([]elector.SessionOption{elector.WithCandidateID(env.ID)}, opts...)...)
}

// elect runs every election of the candidate until it is to resign.
func elect(ctx context.Context, env Env, out *Reporter, make func(string) (*elector.Elector, error)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	elections := names(env)
	errs := &firstError{}
	var all sync.WaitGroup
	for _, election := range elections {
		e, err := make(election)
		if err != nil {
			return err
		}
		all.Go(func() {
			if err := e.Run(ctx, lead(env, out)); !errors.Is(err, context.Canceled) {
				errs.set(err)
			}
		})
	}
	out.Emit(Ready)
	all.Wait()
	return errs.err
}

// lead is the work of a leader: to be there, until the term ends or it is to resign.
func lead(env Env, out *Reporter) func(context.Context, *elector.Term) error {
	return func(ctx context.Context, term *elector.Term) error {
		out.Leading(term.Valid)
		resigned(ctx, env, nil, out)
		return nil
	}
}

// firstError keeps the first of many.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}
