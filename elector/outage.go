package elector

import (
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lock"
)

// An outage is a campaign's failed attempts in a row. While a server is away that the
// candidate knew, as in a failover, it makes quick attempts between those that WithBackoff
// paces, so that the election has a leader soon after there is a server again. Quick
// attempts do not count.
type outage struct {
	began   time.Time
	counted int
	due     time.Time // when the next attempt counts
}

// failed adds a failed attempt. It reports whether that counts, and the wait of
// WithBackoff.
func (o *outage) failed(b backoff.Backoff) (counts bool, wait time.Duration) {
	now := time.Now()
	if now.Before(o.due) {
		return false, backoff.Jitter(b.After(o.counted))
	}
	if o.counted++; o.counted == 1 {
		o.began = now
		wait = backoff.Spread(b.After(1))
	} else {
		wait = backoff.Jitter(b.After(o.counted))
	}
	o.due = now.Add(wait)
	return true, wait
}

// isYoung reports whether the outage has quick attempts still.
func (o *outage) isYoung() bool { return time.Since(o.began) < lock.QuickFor }

// shorten shortens a wait of WithBackoff to one of a quick attempt, if those are up to
// between apart. The last attempt took so long.
func (o *outage) shorten(wait time.Duration, b backoff.Backoff, between, took time.Duration) time.Duration {
	if !o.isYoung() || b.After(o.counted) <= between {
		return wait
	}
	wait = min(backoff.Jitter(between), max(wait, lock.Quick*3/4))
	return max(0, wait-took)
}
