package elector

import "context"

// claim begins what unclaim ends: no two campaigns or terms at a time.
func (e *Elector) claim(ctx context.Context) error {
	if !e.claimed.CompareAndSwap(false, true) {
		return ErrAlreadyRunning
	}
	if e.monitor != nil {
		e.monitor.Start(ctx)
	}
	return nil
}

func (e *Elector) unclaim() {
	if e.monitor != nil {
		e.monitor.Stop()
	}
	e.claimed.Store(false)
}

// quit is unclaim for a campaign that does not end with a term: no hook is called
// after it.
func (e *Elector) quit() {
	if e.monitor != nil {
		e.monitor.Stop()
	}
	e.announcer.flush()
	e.claimed.Store(false)
}
