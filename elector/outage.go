package elector

import (
	"time"

	"github.com/pgelector/pgelector/internal/fault"
	"github.com/pgelector/pgelector/internal/pace"
)

// While a server is away that a candidate knew, as in a failover, the candidate makes
// quick attempts between those that WithBackoff paces, so that the election has a leader
// soon after there is a server again.
const (
	// quick is the longest time from one quick attempt to the next. The shortest is a
	// quarter less: 250 ms, four in a second.
	quick = 334 * time.Millisecond

	// quickFor is for how long an outage has quick attempts. A failover by Patroni takes
	// up to 40 s with its defaults: a ttl of 30 s, and a loop_wait of 10 s.
	quickFor = time.Minute
)

// A standing is what the last answer of a server made of a candidate.
type standing int

const (
	unknown  standing = iota // it has had no answer yet
	followed                 // another led
	led
)

// An outage is a campaign's failed attempts in a row. Those that come before the wait of
// WithBackoff is over do not count.
type outage struct {
	began   time.Time
	counted int
	due     time.Time // when the next attempt counts
}

// failed adds a failed attempt. It reports whether that counts, and the wait of
// WithBackoff.
func (o *outage) failed(b pace.Backoff) (counts bool, wait time.Duration) {
	now := time.Now()
	if now.Before(o.due) {
		return false, pace.Jitter(b.After(o.counted))
	}
	if o.counted++; o.counted == 1 {
		o.began = now
		wait = pace.Spread(b.After(1))
	} else {
		wait = pace.Jitter(b.After(o.counted))
	}
	o.due = now.Add(wait)
	return true, wait
}

// isYoung reports whether the outage has quick attempts still.
func (o *outage) isYoung() bool { return time.Since(o.began) < quickFor }

// shorten shortens a wait of WithBackoff to one of a quick attempt, if those are up to
// between apart. The last attempt took so long.
func (o *outage) shorten(wait time.Duration, b pace.Backoff, between, took time.Duration) time.Duration {
	if !o.isYoung() || b.After(o.counted) <= between {
		return wait
	}
	wait = min(pace.Jitter(between), max(wait, quick*3/4))
	return max(0, wait-took)
}

// between: the one that led hurries. Those that followed keep to their retry interval.
func (p *poller) between(last standing, _ error) time.Duration {
	if last == led {
		return quick
	}
	return max(p.e.retry, quick)
}

// between: those that waited hurry too, unless the server is starting up or full. There
// may be hundreds of them.
func (p *parker) between(last standing, err error) time.Duration {
	if state := fault.State(err); state == "57P03" || state == "53300" {
		return p.poller.between(last, err)
	}
	return quick
}

// between is nothing: the next batch is paced by the worker.
func (h *sharer) between(standing, error) time.Duration { return 0 }

// hurries reports whether the batches are quick attempts.
func (w *worker) hurries() bool { return w.led && w.away.isYoung() }

// pause is the time until the next batch.
func (w *worker) pause() time.Duration {
	if w.hurries() {
		return pace.Jitter(quick)
	}
	return pace.Jitter(w.config.retry)
}
