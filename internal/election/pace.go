package election

import (
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
)

// Quick is the longest time between two quick attempts while the server is away. The shortest is a quarter less.
const Quick = 334 * time.Millisecond

// QuickFor is how long an outage has quick attempts. A failover by Patroni takes up to 40 s with its defaults.
const QuickFor = time.Minute

// A term dies young if it is lost within youth of its grant. After youngInARow such terms the candidate waits.
const (
	youth       = time.Second
	youngInARow = 3
)

// A pace is how long a campaign waits between two attempts. While a server is away that the candidate knew, as in a failover,
// the campaign makes quick attempts between those that the backoff paces. Quick attempts do not count.
type pace struct {
	backoff backoff.Backoff
	retry   func() time.Duration

	tried    bool      // an attempt of this campaign has found the lock busy
	knew     bool      // a server has answered
	led      bool      // by the last answer of a server, this candidate led
	standby  time.Time // when this campaign met its first standby
	began    time.Time // the outage
	counted  int       // attempts that failed in a row, without the quick ones
	due      time.Time // when the next attempt counts
	young    int       // terms in a row that died young
	timeline int64     // of the server that granted them
}

// begin begins a campaign.
func (p *pace) begin() { p.tried, p.standby, p.counted, p.due = false, time.Time{}, 0, time.Time{} }

// busy is the wait after an attempt that found the lock busy.
func (p *pace) busy() time.Duration {
	p.led = false
	p.answered()
	if !p.tried { // candidates may begin at the same moment
		p.tried = true
		return backoff.Spread(p.retry())
	}
	return backoff.Jitter(p.retry())
}

// elected records that the lock was granted.
func (p *pace) elected() {
	p.led, p.tried = true, true
	p.answered()
}

// answered ends the outage.
func (p *pace) answered() { p.knew, p.counted, p.due = true, 0, time.Time{} }

// failed is the wait after an attempt that failed, and whether the attempt counts. A candidate that led hurries, and so does
// one whose acquirer says so. The others keep to their retry interval: there may be hundreds of them.
func (p *pace) failed(took time.Duration, hurry bool) (wait time.Duration, counts bool) {
	now := time.Now()
	if counts = !now.Before(p.due); counts {
		if p.counted++; p.counted == 1 {
			p.began = now
			wait = backoff.Spread(p.backoff.After(1))
		} else {
			wait = backoff.Jitter(p.backoff.After(p.counted))
		}
		p.due = now.Add(wait)
	} else {
		wait = backoff.Jitter(p.backoff.After(p.counted))
	}
	between := max(p.retry(), Quick)
	if p.led || hurry {
		between = Quick
	}
	if p.knew && time.Since(p.began) < QuickFor && p.backoff.After(p.counted) > between {
		wait = max(0, min(backoff.Jitter(between), max(wait, Quick*3/4))-took)
	}
	return wait, counts
}

// awaits reports whether a candidate that has met only standbys still waits for a primary: during a failover a proxy needs
// seconds to notice the new primary.
func (p *pace) awaits(limit time.Duration) bool {
	if p.standby.IsZero() {
		p.standby = time.Now()
	}
	return time.Since(p.standby) < limit
}

// ended is the wait after a term. A candidate whose terms die young waits as after failures: something between it and the
// server ends its sessions, and others could lead meanwhile. These waits end with a term that was not lost, with a longer
// term, or with another server.
func (p *pace) ended(t *Term) time.Duration {
	if !isLost(t.cause()) || t.lasted() > youth {
		p.young = 0
		return 0
	}
	if t.lock.timeline != p.timeline {
		p.young, p.timeline = 0, t.lock.timeline
	}
	if p.young++; p.young < youngInARow {
		return 0
	}
	return backoff.Jitter(p.backoff.After(p.young - youngInARow + 1))
}
