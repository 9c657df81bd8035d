package dashboard

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/roster"
)

// candidate is one line of an election.
type candidate struct {
	ID       string
	Role     role
	Colour   string // class of its bars in the timeline; "" without bars
	Version  string
	Health   string // its last score
	Share    string // value of a meter; "" if the health is not between 0 and 1
	Seen     string // when it last published
	Session  string // backend, user and address
	Waiting  string // how long
	Lease    string // of a leader, how much of it is left, and the leader's priority
	Judged   string // its health in words: since when, why, and the lowest good score
	Metadata []pair
	Hidden   int // pairs of metadata not shown

	Unhealthy bool   // by its own checks, of which it told in time
	Late      bool   // it has not published within its interval
	Unseen    string // for how long nobody has heard of it; "" if it is seen
	Well      bool   // it is known to be alive, and not known to be unhealthy

	recorded *roster.Candidate // nil if the roster does not know it
	heard    time.Time         // when its session last began or ended a statement; zero if hidden
	lease    time.Duration     // of its session; zero if it tells none
	away     time.Duration     // since it was last seen, if it is not
	waiting  bool              // its session waits, and is silent meanwhile
	expired  time.Duration     // since the lease of a leader ran out, if the server should have ended its session
}

// other is a session that holds another lock or waits for one.
type other struct {
	Key string
	candidate
}

type pair struct{ Key, Value string }

// role is the role of a candidate, and a class of the style sheet.
type role string

const (
	leads   role = "leads"
	deputy  role = "deputy"  // holds the deputy's seat
	waits   role = "waits"   // in the server's queue
	blocks  role = "blocks"  // keeps the lock from all candidates
	follows role = "follows" // by the roster
	unseen  role = "unseen"  // has not published within its interval
	left    role = "left"
)

// rank orders the candidates.
var rank = map[role]int{leads: 0, deputy: 1, waits: 2, follows: 3, unseen: 4, left: 5}

// Wrap returns the class of the id.
func (c candidate) Wrap() string { return wrap(c.ID) }

// Class returns the class of the role's badge: only a leader that is known to be well is green.
func (c candidate) Class() string {
	if c.Role == leads && c.Well {
		return "good"
	}
	return "plain"
}

// Gauge returns the class of the score: what was said too long ago is grey.
func (c candidate) Gauge() string {
	switch {
	case c.Late || c.Unseen != "" || c.Role == left:
		return "old"
	case c.Unhealthy:
		return "low"
	}
	return "high"
}

// Bound returns what parts the bad from the good on the score's meter: the candidate's own verdict
// colours all of it.
func (c candidate) Bound() int {
	if c.Unhealthy {
		return 1
	}
	return 0
}

func (c candidate) hasDetails() bool {
	return c.Waiting != "" || c.Session != "" || c.Lease != "" || c.Judged != "" || len(c.Metadata) > 0 || c.Hidden > 0
}

// holder returns the candidate of a session.
func holder(row db.AdvisoryLocksRow, now time.Time) candidate {
	c := candidate{ID: cmp.Or(row.ApplicationName, "without a name"), Role: leads, Session: fmt.Sprintf("backend %d, user %s", row.Pid, row.Usename),
		lease: time.Duration(row.LeaseMillis) * time.Millisecond, waiting: row.WaitingMicros != 0}
	if row.LastMicros != 0 {
		c.heard = db.Time(row.LastMicros)
	}
	if row.ClientAddr != "" {
		c.Session += ", from " + row.ClientAddr
	}
	switch {
	case row.Blocks != "":
		c.Role, c.Session = blocks, db.Blocker(row.Pid, row.ApplicationName, row.Usename, row.Blocks, row.Prepared)
	case row.Deputy:
		c.Role = deputy
	case !row.Granted:
		c.Role = waits
	}
	if c.Role == leads && c.lease != 0 {
		c.Lease = c.leaseAt(now, row.ConnectedMicros != 0)
		if row.Priority != 0 {
			c.Lease += fmt.Sprintf("; priority %d", row.Priority)
		}
	}
	if row.WaitingMicros != 0 {
		c.Waiting = "waiting for " + lasting(now.Sub(db.Time(row.WaitingMicros)))
	}
	return c
}

// leaseAt says how long a leader's lease is, and when it runs out.
func (c *candidate) leaseAt(now time.Time, shown bool) string {
	text := "lease " + lasting(c.lease)
	switch left := c.heard.Add(c.lease).Sub(now); {
	case c.heard.IsZero() && shown: // the session is not hidden from this role
		return text + ", its renewal is not tracked: track_activities is off"
	case c.heard.IsZero():
		return text + ", its renewal is hidden: GRANT pg_read_all_stats"
	case left <= 0:
		return text + ", run out"
	default:
		return fmt.Sprintf("%s, renewed %s ago, %s left", text, lasting(now.Sub(c.heard)), lasting(left))
	}
}

// record adds the roster's record of a candidate.
func (c *candidate) record(r roster.Candidate, now time.Time) {
	c.Version, c.Seen = r.Version, lasting(now.Sub(r.PublishedAt))+" ago"
	if r.Health != nil {
		c.Health = score(*r.Health)
		if *r.Health >= 0 && *r.Health <= 1 {
			c.Share = strconv.FormatFloat(*r.Health, 'f', 4, 64)
		}
	}
	c.Judged = judged(r, now)
	c.recorded = &r
	c.Late = r.State == roster.Silent || r.State == roster.Live && now.After(r.NextBy)
	c.Unhealthy = r.IsHealthy != nil && !*r.IsHealthy && r.State == roster.Live && !c.Late
	if c.Role == "" { // the server does not know it
		c.Role = map[roster.State]role{roster.Live: follows, roster.Silent: unseen, roster.Left: left}[r.State]
	}
}

// judged says what is known of a health beside its score; "" if nothing is.
func judged(r roster.Candidate, now time.Time) string {
	if r.Health == nil || r.CheckedAt.IsZero() {
		return ""
	}
	text := fmt.Sprintf("health checked %s ago", lasting(now.Sub(r.CheckedAt)))
	if r.Minimum != nil {
		text += ", at least " + score(*r.Minimum) + " is good"
	}
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}

func score(health float64) string { return strconv.FormatFloat(health, 'g', 4, 64) }

// shortSilence is how long any session may be silent, and so may a page look late.
const shortSilence = time.Second

// assess says whether the candidate was seen, once all is known of it. A session sends a heartbeat
// at least twice in a lease.
func (c *candidate) assess(now time.Time) {
	heard := now.Sub(c.heard)
	told := !c.heard.IsZero() && c.lease != 0 && !c.waiting
	silent := told && heard > max(c.lease/2, shortSilence)
	published := c.recorded != nil && c.recorded.State == roster.Live && !c.Late
	switch {
	case c.Role == left:
	case silent && c.recorded != nil:
		c.unsee(min(heard, now.Sub(c.recorded.PublishedAt)))
	case silent:
		c.unsee(heard)
	case c.Late && !told && !c.waiting:
		c.unsee(now.Sub(c.recorded.PublishedAt))
	}
	if late := heard - c.lease; c.Role == leads && told && late > 2*shortSilence {
		c.expired = late
	}
	c.Unhealthy = c.Unhealthy && !c.Late
	c.Well = !silent && !c.Late && !c.Unhealthy && (told || published)
}

func (c *candidate) unsee(away time.Duration) {
	c.away, c.Unseen = away, lasting(away)
	if c.Role == follows {
		c.Role = unseen
	}
}
