package main

import "fmt"

// The defaults of package elector, in seconds.
const (
	lease     = 10.0
	heartbeat = lease / 5
	drain     = lease / 5
	margin    = lease / 10
	validity  = lease - drain - margin
	retry     = 1.0
)

// leaseArithmetic draws what happens when a leader falls silent.
func leaseArithmetic(c *canvas) {
	c.title = "After its last answered heartbeat a term is valid for 7 s; its work has 2 s to return; 1 s is margin; then the server ends the session, and another candidate is elected."
	c.width, c.height = 900, 400
	const (
		left   = 128.0
		second = 62.0
		answer = 0.4  // when the server has answered, for the eye
		next   = 10.9 // when another candidate is elected, for the eye
		height = 38.0
	)
	at := func(s float64) float64 { return left + s*second }
	lane := func(y float64, lines ...string) { c.label(left-14, y, 14, c.text, "end", "600", lines...) }

	// The heartbeats.
	lane(66, "heartbeats")
	c.arrow(at(0), 44, at(0), 78)
	c.label(at(0), 34, 13, c.text, "start", "600", "sent: the last one that is answered")
	c.add(`<path d="M%.1f 50 V72 M%.1f 50 L%.1f 60 M%.1f 50 L%.1f 60" stroke="%s" stroke-width="1.5"/>`,
		at(heartbeat), at(heartbeat)-5, at(heartbeat)+5, at(heartbeat)+5, at(heartbeat)-5, c.line)
	c.note(at(heartbeat)+14, 66, "start", "the next one is not: a dead link, a frozen process, a hung host")

	// The leader.
	lane(112, "this leader")
	c.bar(at(0), 88, validity*second, height, c.good, c.onGood, fmt.Sprintf("the term is valid: %g s = lease − drain − margin", validity))
	c.bar(at(validity)+1, 88, drain*second-2, height, c.warn, c.onWarn, fmt.Sprintf("drain: %g s", drain))
	c.bar(at(validity+drain), 88, margin*second, height, c.quiet, c.on, "margin")
	c.stroke(at(validity), 126, at(validity), 158)
	c.note(at(validity)-8, 146, "end", "the context is cancelled, IsLeader says false,", "and the work has the drain to return")
	c.stroke(at(validity+drain), 126, at(validity+drain), 190)
	c.note(at(validity+drain)-8, 185, "end", "work that still runs is reported to OnError")

	// The server.
	lane(226, "PostgreSQL")
	c.bar(at(answer), 202, lease*second, height, c.quiet, c.on, fmt.Sprintf("idle_session_timeout = the lease, %g s: the session, and with it the lock, is kept", lease))
	c.stroke(at(lease), 88, at(lease), 262)
	c.label(at(lease)-6, 258, 13, c.text, "end", "600", "sent + lease: not before here")
	c.note(at(answer), 258, "start", "the timer starts when the server has answered")

	// The next leader.
	lane(314, "another", "candidate")
	for s := 0.3; s < next; s += 0.88 * retry {
		c.add(`<path d="M%.1f 308 V330" stroke="%s" stroke-width="1.5" opacity="0.55"/>`, at(s), c.line)
	}
	c.note(at(0.3), 350, "start", "an attempt in each retry interval: busy")
	c.bar(at(next), 302, 12.2*second-next*second, height-4, c.good, c.onGood, "leads")
	c.label(at(12.2), 292, 13, c.text, "end", "600", fmt.Sprintf("elected, at the latest about lease + retry = %g s after the answer", lease+retry))
	c.note(at(0), 388, "start", fmt.Sprintf("Drawn with the defaults: lease %g s, heartbeat interval %g s, drain %g s, margin %g s, retry interval %g s.", lease, heartbeat, drain, margin, retry))
}
