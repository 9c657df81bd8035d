package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/pgelector/pgelector/elector"
)

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
			for end := time.Now().Add(c.draw(0, 8*c.plan.Lease)); time.Now().Before(end) && c.refused.Load() == refused && sleep(ctx, c.draw(0, 4*c.plan.Heartbeat)); {
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
