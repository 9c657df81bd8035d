package roster

import (
	"context"

	"github.com/pgelector/pgelector/hooks"
)

var (
	_ hooks.CampaignHook = (*Roster)(nil)
	_ hooks.ElectedHook  = (*Roster)(nil)
	_ hooks.DemotedHook  = (*Roster)(nil)
)

// OnCampaign notes that the candidate takes part. It waits for nothing.
func (r *Roster) OnCampaign(_ context.Context, e hooks.Campaign) {
	r.note(func(l *ledger) { l.attempted(e) })
}

// OnElected notes that a term began. It waits for nothing.
func (r *Roster) OnElected(_ context.Context, e hooks.Elected) {
	r.note(func(l *ledger) { l.elected(e) })
}

// OnDemoted notes that a term has ended. It waits for nothing.
func (r *Roster) OnDemoted(_ context.Context, e hooks.Demoted) {
	r.note(func(l *ledger) { l.demoted(e) })
}

// note writes into the ledger, and sees to it that it will be read.
func (r *Roster) note(write func(*ledger)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	dropped := r.ledger.dropped
	write(r.ledger)
	r.overflow += r.ledger.dropped - dropped
	if !r.running {
		r.running = true
		go r.run()
	}
	if r.ledger.news {
		r.wakeUp()
	}
}

// wakeUp has the writer look into the ledger.
func (r *Roster) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
