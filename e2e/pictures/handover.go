package main

// handOver draws how a leader resigns in favour of its heir.
func handOver(c *canvas) {
	c.title = "The leader calls its heir and goes on leading until the heir is the first in the server's queue; then its work returns, it unlocks, and the server hands the lock to the heir."
	c.width, c.height = 900, 372
	const (
		left   = 128.0
		height = 38.0
		called = 190.0 // ResignTo
		parked = 330.0 // the heir is in the queue
		first  = 470.0 // and the first of it
		done   = 640.0 // the work has returned
		right  = 880.0
	)
	lane := func(y float64, lines ...string) { c.label(left-14, y, 14, c.text, "end", "600", lines...) }

	lane(72, "leader")
	c.bar(left, 48, first-left, height, c.good, c.onGood, "the term goes on")
	c.bar(first+1, 48, done-first-2, height, c.warn, c.onWarn, "its work returns")
	c.label(called, 36, 13, c.text, "middle", "600", "ResignTo(heir)")
	c.stroke(called, 40, called, 246)
	c.label(first, 36, 13, c.text, "middle", "600", "the term ends")
	c.note(done+8, 62, "start", "unlocks if the heir is still", "the first: one statement")
	c.stroke(first, 86, first, 140)

	lane(160, "PostgreSQL's", "queue")
	c.bar(left, 140, parked-left-2, height, c.quiet, c.on, "others wait, or nobody")
	c.bar(parked, 140, first-parked-2, height, c.quiet, c.on, "… and the heir")
	c.bar(first, 140, done-first-1, height, c.good, c.onGood, "the heir is the first")
	c.note(parked+4, 196, "start", "those before it are sent to the end")
	c.arrow(done, 86, done, 228)

	lane(254, "heir")
	c.bar(left, 230, parked-left-2, height, c.quiet, c.on, "follows: polls, or is parked")
	c.bar(parked, 230, done-parked-1, height, c.warn, c.onWarn, "waits in the server, as long as it is called")
	c.bar(done, 230, right-done, height, c.good, c.onGood, "leads, some 3 ms later")
	c.note(called+6, 290, "start", "hears of the call at its next attempt, or at once with a notifier")

	c.note(left, 326, "start",
		"The heir does not come within one lease: the term is resigned without it, and the error is ErrHeirAbsent.",
		"It is lost while the work returns: the lock is kept for it for one heartbeat interval, or a second, more.")
}
