package systems

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pgelector/pgelector/elector"
)

const (
	forDefault      = "One leader for a service that already has PostgreSQL."
	forWait         = "The same, where milliseconds without a leader matter. A waiting statement is visible in the server."
	forFastest      = "The same, where a silent leader must also be replaced within a second."
	forPoll         = "The same, where connections are scarce: a follower pins none, and a new leader takes up to a retry interval."
	forDelay        = "The same, where the server's host may die, and two leaders must not meet after that. Nobody leads in the first 10 s of a server."
	forPooled       = "The same, where only a transaction pooler can be reached. The lock is held inside a transaction, and followers poll: each deputy takes one of the pooler's connections."
	forPooledDeputy = "The same, where the pooler has connections to spare."
	forSession      = "Very many elections in one process. They share one connection: its loss ends every term."
)

// retryInterval is the longest default of elector.WithRetryInterval. It is longer than the default heartbeat interval.
const retryInterval = 3 * time.Second

// library is this library with one pool and one elector per election.
func library(driver, name, settings, purpose string, quick []Fault, opts ...elector.Option) System {
	return System{
		Name: name, Settings: settings, For: purpose, Own: true,
		Quick: quick,
		Phase: retryInterval,
		Cap:   30 * time.Second,
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			pool, err := openPool(driver, env.DSN)
			if err != nil {
				return err
			}
			opts := append([]elector.Option{elector.WithCandidateID(env.ID)}, opts...)
			return runElections(ctx, env, out, func(election string) (*elector.Elector, error) {
				return elector.New(pool, election, opts...)
			})
		},
	}
}

// shared is this library with all elections on one session.
func shared(driver, name, settings string) System {
	return System{
		Name: name, Settings: settings, For: forSession, Own: true,
		Phase: retryInterval,
		Cap:   60 * time.Second,
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			pool, err := openPool(driver, env.DSN)
			if err != nil {
				return err
			}
			session, err := elector.NewSession(pool, elector.WithCandidateID(env.ID))
			if err != nil {
				return err
			}
			return runElections(ctx, env, out, func(election string) (*elector.Elector, error) {
				return session.Elector(election)
			})
		},
	}
}

// runElections runs all elections of the candidate until it has resigned, and returns the first error.
func runElections(ctx context.Context, env Env, out *Reporter, newElector func(string) (*elector.Elector, error)) error {
	elections := env.elections()
	failed := make(chan error, len(elections))
	var all sync.WaitGroup
	for _, election := range elections {
		e, err := newElector(election)
		if err != nil {
			return err
		}
		all.Go(func() {
			err := e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
				out.Leading(term.Valid)
				awaitResign(ctx, env, nil, out)
				return nil
			})
			if err != nil && !errors.Is(err, context.Canceled) {
				failed <- err
			}
		})
	}
	out.Emit(Ready)
	all.Wait()
	close(failed)
	return <-failed
}

// pooled makes the candidates of a system connect through the pooler.
func pooled(s System) System {
	s.Pooled = true
	return s
}
