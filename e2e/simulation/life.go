package simulation

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// A life is one process of a candidate, from its start until it ends or is killed.
// The candidate then has another.
type life struct {
	*world
	Candidate
	id      string
	process *electortest.Process
	pool    *sql.DB
	rec     *hookstest.Recorder
	seats   []*seat
	shared  *elector.Session // nil unless the kind is Session

	*chance

	refused atomic.Int32 // how often an elector has given up

	mu     sync.Mutex
	flaps  bool          // its health
	frozen chan struct{} // closed when it thaws; nil while it is not frozen
}

// A seat is a life's candidacy for one election.
type seat struct {
	*life
	*elector.Elector
	*chance
	standing // guarded by the judge's mutex
}

// chance is drawn from the seed: each seat and each process has its own, so that one
// does not depend on which of two drew first.
type chance struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (w *world) newChance(n, generation, seat int) *chance {
	return &chance{rand: rand.New(rand.NewPCG(w.plan.Seed, uint64(1+n+10*seat+1000*generation)))}
}

// draw draws a duration.
func (c *chance) draw(least, most time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return between(c.rand, least, most)
}

func (w *world) newLife(n, generation int) *life {
	l := &life{world: w, Candidate: w.plan.Candidates[n], id: fmt.Sprintf("c%d.%d", n, generation), rec: hookstest.NewRecorder(),
		chance: w.newChance(n, generation, 0)}
	l.process = w.primary().NewProcess()
	l.process.SetDriver(l.Driver)
	if w.plan.Latency > 0 {
		l.process.SetLatency(func() time.Duration { return l.draw(0, w.plan.Latency) })
	}
	l.pool = l.process.Open()
	shared := []elector.SessionOption{elector.WithCandidateID(l.id), elector.WithLease(w.plan.Lease), elector.WithHeartbeatInterval(w.plan.Heartbeat),
		elector.WithDrain(w.plan.Drain), elector.WithRetryInterval(w.plan.Retry),
		elector.WithHooks(hooks.Funcs{Error: func(_ context.Context, f hooks.Failure) {
			if f.Permanent {
				l.refused.Add(1)
			}
		}})}
	shared = append(shared, l.steering()...)
	if l.Watch {
		shared = append(shared, elector.WithWatch())
	}
	shared = append(shared, elector.WithHooks(l.rec))
	if l.Kind == shares {
		l.shared = must(elector.NewSession(l.pool, shared...))
		for i := range w.plan.Elections {
			l.seats = append(l.seats, &seat{life: l, Elector: must(l.shared.Elector(election(i))), chance: w.newChance(n, generation, 1+i)})
		}
		return l
	}
	var options []elector.Option
	for _, option := range shared {
		options = append(options, option)
	}
	if w.plan.Synchronous {
		options = append(options, elector.WithSynchronousStandby(w.plan.Lease))
	}
	options = append(options, elector.WithStandby(l.Standby), elector.WithDeputyInterval(l.Interval))
	e := must(elector.New(l.pool, election(n%w.plan.Elections), options...))
	l.seats = []*seat{{life: l, Elector: e, chance: w.newChance(n, generation, 1)}}
	return l
}

func election(i int) string { return fmt.Sprint("election-", i) }

// live uses the library until ctx ends, and leaves.
func (l *life) live(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range l.seats {
		all.Go(func() {
			for ctx.Err() == nil {
				s.stand(ctx)
				sleep(ctx, l.plan.Retry/2)
			}
		})
	}
	if l.shared != nil {
		<-ctx.Done()
		l.report("Session.Close", l.shared.Close(context.Background()))
	}
	all.Wait()
	for _, violation := range l.rec.Violations() {
		l.judge.violated("a hook: %s", violation)
	}
}

// stand is one use of the library, in the way of the candidate's kind.
func (s *seat) stand(ctx context.Context) {
	switch s.Kind {
	case campaigns:
		if term, err := s.Campaign(ctx); err == nil {
			s.hold(ctx, term)
		}
	case tries:
		if term, elected, _ := s.TryCampaign(ctx); elected {
			s.hold(ctx, term)
		}
	case starts:
		if s.Start(ctx) == nil {
			refused := s.refused.Load()
			for end := time.Now().Add(s.draw(0, 8*s.plan.Lease)); time.Now().Before(end) && s.refused.Load() == refused && sleep(ctx, s.draw(0, 4*s.plan.Heartbeat)); {
				_, _ = s.RunIfLeader(ctx, func(ctx context.Context) error {
					term, leading := s.Term()
					if !leading {
						return nil
					}
					return s.lead(ctx, term)
				})
			}
			_ = s.Stop(context.Background())
		}
	default:
		_ = s.Run(ctx, s.lead)
	}
}

// hold looks after a term, as the caller of Campaign must.
func (s *seat) hold(ctx context.Context, term *elector.Term) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(term.Context(), cancel)
	_ = s.lead(ctx, term)
	if s.Wills && ctx.Err() == nil {
		s.bequeath(ctx, term)
	}
	stop()
	cancel()
	_ = term.Resign(context.Background())
}

// lead is the work of a leader: it writes now and then, and returns in time when
// its context ends, or when it has had enough.
func (s *seat) lead(ctx context.Context, term *elector.Term) error {
	s.judge.workBegins(s, term.Token())
	defer s.judge.workEnds(s)
	enough, cancel := context.WithTimeout(ctx, s.draw(0, 4*s.plan.Lease))
	defer cancel()
	w := writer{seat: s, term: term}
	for sleep(enough, s.draw(0, s.plan.Heartbeat)) {
		s.standStill()
		if s.Writes && !w.write(ctx) {
			break
		}
	}
	if ctx.Err() != nil {
		time.Sleep(s.draw(0, s.plan.Drain*2/5)) // an unanswered COMMIT may have taken the half
	}
	s.standStill()
	if s.minded() && s.Wills && ctx.Err() == nil {
		s.bequeath(ctx, term)
	}
	if s.draw(0, 5) == 0 {
		return errLead
	}
	return nil
}

// minded reports whether the elector sees the work return. Of that of Campaign's and
// TryCampaign's callers it is told by Resign.
func (s *seat) minded() bool { return s.Kind != campaigns && s.Kind != tries }

var errLead = fmt.Errorf("simulation: the work failed")

// standStill waits while the process is frozen.
func (l *life) standStill() {
	for {
		l.mu.Lock()
		frozen := l.frozen
		l.mu.Unlock()
		if frozen == nil {
			return
		}
		<-frozen
	}
}

func (l *life) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen == nil {
		l.frozen = make(chan struct{})
		l.process.Freeze()
	}
}

func (l *life) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen != nil {
		l.process.Thaw()
		close(l.frozen)
		l.frozen = nil
	}
}

// sleep waits and reports whether it did; false means that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// must is for options that plans keep within their bounds.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
