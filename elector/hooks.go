package elector

import (
	"fmt"
	"slices"
	"sync"

	"github.com/pgelector/pgelector/hooks"
)

// AddHooks adds hooks while the elector may run. They receive the events from now on, after
// those that were there before. Of a term that goes on they receive no OnDemoted, because they
// have not received its OnElected. remove removes them: no event begins to be delivered to them
// after it has returned. Neither waits for a hook, so a hook may call them.
func (e *Elector) AddHooks(all ...hooks.Hook) (remove func(), err error) {
	for i, h := range all {
		if err := hooks.Check(h); err != nil {
			return nil, fmt.Errorf("%w: AddHooks: hook %d: %w", ErrConfig, i+1, err)
		}
	}
	return e.announcer.add(all), nil
}

// A hookSet is the hooks at one time. It is replaced as a whole, so no event takes a lock.
type hookSet struct {
	hooks.All
	all           []*registration
	seesHeartbeat bool // whether any hook wants it
	seesLeader    bool
}

// A registration is a hook and whether it has received OnElected of the last term, which only
// the hooks' queue touches.
type registration struct {
	hook    hooks.Hook
	elected bool
}

func newHookSet(all []*registration) *hookSet {
	hook := joinOf(all)
	return &hookSet{All: hook, all: all,
		seesHeartbeat: hooks.Wants[hooks.HeartbeatHook](hook), seesLeader: hooks.Wants[hooks.LeaderChangedHook](hook)}
}

func joinOf(all []*registration) hooks.All {
	var each []hooks.Hook
	for _, r := range all {
		each = append(each, r.hook)
	}
	return hooks.Join(each...)
}

func register(all []hooks.Hook) (registered []*registration) {
	for _, h := range all {
		registered = append(registered, &registration{hook: h})
	}
	return registered
}

// toElect returns the hooks for OnElected.
func (s *hookSet) toElect() hooks.All {
	for _, r := range s.all {
		r.elected = true
	}
	return s
}

// toDemote returns the hooks that have received OnElected.
func (s *hookSet) toDemote() hooks.All {
	var told []*registration
	for _, r := range s.all {
		if r.elected {
			told = append(told, r)
		}
		r.elected = false
	}
	return joinOf(told)
}

func (a *announcer) add(all []hooks.Hook) (remove func()) {
	added := register(all)
	a.change(func(now []*registration) []*registration { return append(now, added...) })
	return sync.OnceFunc(func() {
		a.change(func(now []*registration) []*registration {
			return slices.DeleteFunc(now, func(r *registration) bool { return slices.Contains(added, r) })
		})
	})
}

func (a *announcer) change(how func([]*registration) []*registration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hooks.Store(newHookSet(how(slices.Clone(a.hooks.Load().all))))
}
