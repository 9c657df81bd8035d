package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/shard"
)

// An instance is one process of a candidate, from its start until it ends or is killed. The
// candidate then starts another.
type instance struct {
	*world
	Candidate
	id          string
	process     *electortest.Process
	pool        *sql.DB
	rec         *hookstest.Recorder
	candidacies []*candidacy
	shared      *elector.Session        // nil unless the kind is Session
	options     []elector.SessionOption // of a member

	*chance

	refused atomic.Int32 // how often an elector has given up

	mu       sync.Mutex
	flapping bool          // its health
	thawed   chan struct{} // closed when it thaws; nil while it is not frozen
}

// chance draws from the seed. Each candidacy and each process has its own, so that what it
// draws does not depend on the order among them.
type chance struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (w *world) newChance(n, generation, candidacy int) *chance {
	return &chance{rand: rand.New(rand.NewPCG(w.plan.Seed, uint64(1+n+10*candidacy+1000*generation)))}
}

// draw draws a duration.
func (c *chance) draw(least, most time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return between(c.rand, least, most)
}

func (w *world) newInstance(n, generation int) *instance {
	i := &instance{world: w, Candidate: w.plan.Candidates[n], id: fmt.Sprintf("c%d.%d", n, generation), rec: hookstest.NewRecorder(),
		chance: w.newChance(n, generation, 0)}
	if i.Pooled {
		i.process = w.pooler.NewProcess()
	} else {
		i.process = w.primary().NewProcess()
	}
	i.process.SetDriver(i.Driver)
	if w.plan.Latency > 0 {
		i.process.SetLatency(func() time.Duration { return i.draw(0, w.plan.Latency) })
	}
	i.pool = i.process.Open()
	shared := []elector.SessionOption{elector.WithCandidateID(i.id), elector.WithLease(w.plan.Lease), elector.WithHeartbeatInterval(w.plan.Heartbeat),
		elector.WithDrain(w.plan.Drain), elector.WithRetryInterval(w.plan.Retry),
		elector.WithHooks(hooks.Funcs{Error: func(_ context.Context, f hooks.Failure) {
			if f.Permanent {
				i.refused.Add(1)
			}
		}})}
	if w.plan.LockDelay {
		shared = append(shared, elector.WithLockDelay(w.plan.Lease))
	}
	if i.Notified {
		shared = append(shared, elector.WithNotifier(i.notifier))
	}
	if i.Health {
		shared = append(shared, elector.WithHealth(i.score, elector.HealthPolicy{Interval: w.plan.Heartbeat, StepDownAfter: 2, CampaignAfter: 2}))
	}
	shared = append(shared, elector.WithHooks(i.rec))
	if i.Kind == members {
		i.options = shared
		for k := range max(w.plan.Shards, len(w.plan.Candidates)) {
			i.candidacies = append(i.candidacies, &candidacy{instance: i, Elector: must(elector.New(i.pool, shard.Election(group, fmt.Sprint(k)))),
				chance: w.newChance(n, generation, 1+k)})
		}
		return i
	}
	if i.Kind == shares {
		i.shared = must(elector.NewSession(i.pool, shared...))
		for k := range w.plan.Elections {
			i.candidacies = append(i.candidacies, &candidacy{instance: i, Elector: must(i.shared.Elector(election(k))), chance: w.newChance(n, generation, 1+k)})
		}
		return i
	}
	var options []elector.Option
	for _, option := range shared {
		options = append(options, option)
	}
	if w.plan.Synchronous {
		options = append(options, elector.WithSynchronousStandby(w.plan.Lease))
	}
	options = append(options, elector.WithTakeover(i.Takeover), elector.WithDeputyInterval(i.Interval), elector.WithScope(i.Scope))
	if w.plan.Prefers {
		options = append(options, elector.WithPriority(i.Priority), elector.WithPreemptDelay(w.plan.Retry))
	}
	e := must(elector.New(i.pool, election(n%w.plan.Elections), options...))
	i.candidacies = []*candidacy{{instance: i, Elector: e, chance: w.newChance(n, generation, 1)}}
	return i
}

func election(i int) string { return fmt.Sprint("election-", i) }

// run uses the library until ctx ends.
func (i *instance) run(ctx context.Context) {
	var all sync.WaitGroup
	if i.Kind == members {
		i.share(ctx)
	}
	for _, c := range i.candidacies {
		all.Go(func() {
			for ctx.Err() == nil {
				c.campaign(ctx)
				sleep(ctx, i.plan.Retry/2)
			}
		})
	}
	if i.shared != nil {
		<-ctx.Done()
		if err := i.shared.Close(context.Background()); err != nil {
			i.judge.violated("Session.Close: %v", err)
		}
	}
	all.Wait()
	for _, violation := range i.rec.Violations() {
		i.judge.violated("a hook: %s", violation)
	}
}

// score is the health check. While the health flaps, it returns good and bad scores, does not
// return in time, and panics.
func (i *instance) score(ctx context.Context) elector.HealthReport {
	i.mu.Lock()
	flapping := i.flapping
	i.mu.Unlock()
	if !flapping {
		return elector.HealthReport{Score: 1}
	}
	switch i.draw(0, 8) {
	case 0:
		<-ctx.Done()
	case 1:
		panic("the check panics")
	case 2, 3:
		return elector.HealthReport{Score: 1}
	}
	return elector.HealthReport{Score: 0}
}

func (i *instance) setFlapping(flapping bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.flapping = flapping
}

func (i *instance) waitWhileFrozen() {
	for {
		i.mu.Lock()
		thawed := i.thawed
		i.mu.Unlock()
		if thawed == nil {
			return
		}
		<-thawed
	}
}

func (i *instance) freeze() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.thawed == nil {
		i.thawed = make(chan struct{})
		i.process.Freeze()
	}
}

func (i *instance) thaw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.thawed != nil {
		i.process.Thaw()
		close(i.thawed)
		i.thawed = nil
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

// must is for options, which a plan keeps within their bounds.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A candidacy is an instance's part in one election.
type candidacy struct {
	*instance
	*elector.Elector
	*chance
	state // guarded by the judge's mutex
}

// campaign uses the library once, as the candidate's kind does.
func (c *candidacy) campaign(ctx context.Context) {
	switch c.Kind {
	case campaigns:
		if term, err := c.Campaign(ctx); err == nil {
			c.holdTerm(ctx, term)
		}
	case tries:
		if term, elected, _ := c.TryCampaign(ctx); elected {
			c.holdTerm(ctx, term)
		}
	case starts:
		if c.Start(ctx) == nil {
			refused := c.refused.Load()
			for end := time.Now().Add(c.draw(0, 8*c.plan.Lease)); (time.Now().Before(end) || c.calm.Load()) && c.refused.Load() == refused && sleep(ctx, c.draw(0, 4*c.plan.Heartbeat)); {
				_, _ = c.RunIfLeader(ctx, func(ctx context.Context) error {
					term, leading := c.Term()
					if !leading {
						return nil
					}
					return c.lead(ctx, term)
				})
			}
			_ = c.Stop(context.Background())
		}
	default:
		_ = c.Run(ctx, c.lead)
	}
}

// holdTerm leads and resigns, as the caller of Campaign must.
func (c *candidacy) holdTerm(ctx context.Context, term *elector.Term) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(term.Context(), cancel)
	_ = c.lead(ctx, term)
	if c.Transfers && ctx.Err() == nil {
		c.transfer(ctx, term)
	}
	stop()
	cancel()
	_ = term.Resign(context.Background())
}

// lead is the work of a leader. It writes now and then, and returns after a while, or within
// the drain once ctx has ended.
func (c *candidacy) lead(ctx context.Context, term *elector.Term) error {
	c.judge.workBegins(c, term)
	defer c.judge.workEnds(c)
	end := time.Now().Add(c.draw(0, 4*c.plan.Lease))
	w, writes := writer{candidacy: c, term: term}, c.Writes
	for sleep(ctx, c.draw(0, c.plan.Heartbeat)) && (time.Now().Before(end) || c.calm.Load()) {
		c.waitWhileFrozen()
		if writes && !w.write(ctx) {
			if !c.calm.Load() {
				break
			}
			writes = false
		}
	}
	if ctx.Err() != nil {
		time.Sleep(c.draw(0, c.plan.Drain*2/5)) // an unanswered COMMIT may have taken half of it
	}
	c.waitWhileFrozen()
	if c.electorRunsWork() && c.Transfers && ctx.Err() == nil {
		c.transfer(ctx, term)
	}
	if c.draw(0, 5) == 0 {
		return errLead
	}
	return nil
}

// electorRunsWork reports whether the elector runs the work, and so sees it return. For
// Campaign and TryCampaign, Resign asserts that the work has returned.
func (c *candidacy) electorRunsWork() bool { return c.Kind != campaigns && c.Kind != tries }

var errLead = errors.New("simulation: the work failed")

// transfer resigns in favor of another candidate, which may be dead.
func (c *candidacy) transfer(ctx context.Context, term *elector.Term) {
	successors := c.judge.others(c)
	if len(successors) == 0 {
		return
	}
	_ = term.TransferTo(ctx, successors[c.draw(0, time.Duration(len(successors)))])
}
