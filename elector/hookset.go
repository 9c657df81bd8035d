package elector

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pgelector/pgelector/hooks"
)

// AddHooks adds hooks while the elector may run. They receive the events from now on, after
// those that were there before. They receive no OnDemoted for a term that began before,
// because they have not received its OnElected. remove removes the hooks: after it has returned, no
// new call to them begins, except a call that another goroutine was just about to make. AddHooks and
// remove wait for no hook, so a hook may call them.
func (e *Elector) AddHooks(all ...hooks.Hook) (remove func(), err error) {
	for i, h := range all {
		if err := hooks.Check(h); err != nil {
			return nil, fmt.Errorf("%w: AddHooks: hook %d: %w", ErrConfig, i+1, err)
		}
	}
	return e.announcer.add(all), nil
}

// A hookSet is a snapshot of the hooks. It is replaced, not changed, so an event reads it without a lock.
type hookSet struct {
	all           []*registration
	seesHeartbeat bool // whether any hook wants it
	seesLeader    bool
}

// A registration is a hook, and whether it has received OnElected of the last term: only the
// hooks' queue touches elected.
type registration struct {
	hook    hooks.Hook
	elected bool
	removed atomic.Bool
}

func newHookSet(all []*registration) *hookSet {
	s := &hookSet{all: all}
	for _, r := range all {
		s.seesHeartbeat = s.seesHeartbeat || hooks.Wants[hooks.HeartbeatHook](r.hook)
		s.seesLeader = s.seesLeader || hooks.Wants[hooks.LeaderChangedHook](r.hook)
	}
	return s
}

// register registers each hook, also those inside a Join, by itself.
func register(all []hooks.Hook) (registered []*registration) {
	for _, h := range all {
		if joined, ok := h.(interface{ Unwrap() []hooks.Hook }); ok {
			registered = append(registered, register(joined.Unwrap())...)
		} else {
			registered = append(registered, &registration{hook: h})
		}
	}
	return registered
}

// toDemote returns the hooks that have received OnElected.
func (s *hookSet) toDemote() (told []*registration) {
	for _, r := range s.all {
		if r.elected {
			told = append(told, r)
		}
		r.elected = false
	}
	return told
}

func (a *announcer) add(all []hooks.Hook) (remove func()) {
	added := register(all)
	a.change(func(now []*registration) []*registration { return append(now, added...) })
	return sync.OnceFunc(func() {
		for _, r := range added {
			r.removed.Store(true)
		}
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
