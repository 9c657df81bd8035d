package roster

import (
	"context"
	"fmt"
	"slices"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

var (
	_ hooks.CampaignHook = (*Roster)(nil)
	_ hooks.ElectedHook  = (*Roster)(nil)
	_ hooks.DemotedHook  = (*Roster)(nil)
)

// Add makes the Roster publish the health of the electors' candidates: the score of the
// last check (elector.WithHealth). A candidate that is unhealthy and therefore makes no
// attempt stays published if it is checked at least once in three publish intervals. The
// Roster must also be among each elector's hooks. If an elector is nil, Add adds none and
// returns an error that wraps ErrConfig.
func (r *Roster) Add(electors ...*elector.Elector) error {
	if i := slices.Index(electors, nil); i >= 0 {
		return fmt.Errorf("%w: elector %d is nil", ErrConfig, i+1)
	}
	r.note(func(*ledger) { r.electors = append(r.electors, electors...) })
	return nil
}

// Remove removes electors, such as closed ones (elector.Elector.Close). It ignores
// electors that were not added.
func (r *Roster) Remove(electors ...*elector.Elector) {
	r.note(func(*ledger) {
		r.electors = slices.DeleteFunc(r.electors, func(e *elector.Elector) bool { return slices.Contains(electors, e) })
	})
}

// OnCampaign records that the candidate takes part. It does not block.
func (r *Roster) OnCampaign(_ context.Context, e hooks.Campaign) {
	r.note(func(l *ledger) { l.attempted(e) })
}

// OnElected records that a term began. It does not block.
func (r *Roster) OnElected(_ context.Context, e hooks.Elected) {
	r.note(func(l *ledger) { l.elected(e) })
}

// OnDemoted records that a term ended. It does not block.
func (r *Roster) OnDemoted(_ context.Context, e hooks.Demoted) {
	r.note(func(l *ledger) { l.demoted(e) })
}

// note changes the ledger, and starts or wakes the writer.
func (r *Roster) note(change func(*ledger)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	dropped := r.ledger.dropped
	change(r.ledger)
	r.overflow += r.ledger.dropped - dropped
	if !r.running {
		r.running = true
		go r.run()
	}
	if r.ledger.news {
		r.wakeUp()
	}
}

func (r *Roster) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
