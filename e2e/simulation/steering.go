package simulation

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A bellman is the notifier of all candidates: what a leader tells as it resigns, it
// passes on late, twice, or not at all.
type bellman struct {
	*chance
	mu      sync.Mutex
	wakes   map[int]func(payload string)
	last    int
	slowest time.Duration
}

func newBellman(w *world) *bellman {
	return &bellman{chance: w.newChance(99, 0, 0), wakes: map[int]func(string){}, slowest: w.plan.Retry}
}

// Subscribe implements elector.Notifier.
func (b *bellman) Subscribe(wake func(payload string)) (unsubscribe func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	n := b.last
	b.wakes[n] = wake
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.wakes, n)
	}
}

// hear is told of each step of the server's.
func (b *bellman) hear(e electortest.Event) {
	if !e.Done || e.Err != nil || e.What != "UnlockAndNotify" && e.What != "Notify" {
		return
	}
	payload := e.Args[len(e.Args)-1].(string)
	for range b.draw(0, 3) { // lost, once, or twice
		time.AfterFunc(b.draw(0, b.slowest), func() { b.ring(payload) })
	}
}

func (b *bellman) ring(payload string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.last + 1 {
		if wake := b.wakes[n]; wake != nil {
			wake(payload)
		}
	}
}

// steering are the options that steer.
func (l *life) steering() (options []elector.SessionOption) {
	if l.Wakes {
		options = append(options, elector.WithNotifier(l.bellman))
	}
	if l.Health {
		options = append(options, elector.WithHealth(l.score, elector.HealthPolicy{Interval: l.plan.Heartbeat, StepDownAfter: 2, CampaignAfter: 2}))
	}
	return options
}

// score is fit, unless the life's health flaps: then it is bad, or good, or does not
// come, or the check panics.
func (l *life) score(ctx context.Context) float64 {
	l.mu.Lock()
	flaps := l.flaps
	l.mu.Unlock()
	if !flaps {
		return 1
	}
	switch l.draw(0, 8) {
	case 0:
		<-ctx.Done()
	case 1:
		panic("the check panics")
	case 2, 3:
		return 1
	}
	return 0
}

func (l *life) flap(flaps bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flaps = flaps
}

// bequeath has the lead resign in favour of another candidate, which may be dead.
func (s *seat) bequeath(ctx context.Context, term *elector.Term) {
	successors := s.judge.others(s)
	if len(successors) == 0 {
		return
	}
	_ = term.TransferTo(ctx, successors[s.draw(0, time.Duration(len(successors)))])
}

// others are the ids of the other candidates of an election, dead or alive.
func (j *judge) others(s *seat) (ids []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, other := range j.seats {
		if other.id != s.id && other.Election() == s.Election() {
			ids = append(ids, other.id)
		}
	}
	return slices.Compact(ids)
}
