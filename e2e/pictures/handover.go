package main

// handOver draws how a leader resigns in favour of its successor.
func handOver(c *canvas) {
	c.title = "The leader offers its lock to a successor and goes on leading until the successor is the first in the server's queue; then its work returns, it unlocks, and the server hands the lock to the successor."
	c.width, c.height = 900, 372
	const (
		left    = 128.0
		height  = 38.0
		offered = 190.0 // TransferTo
		queued  = 330.0 // the successor is in the queue
		first   = 470.0 // and the first of it
		done    = 640.0 // the work has returned
		right   = 880.0
	)
	lane := func(y float64, lines ...string) { c.label(left-14, y, 14, c.text, "end", "600", lines...) }

	lane(72, "leader")
	c.bar(left, 48, first-left, height, c.good, c.onGood, "the term goes on")
	c.bar(first+1, 48, done-first-2, height, c.warn, c.onWarn, "its work returns")
	c.label(offered, 36, 13, c.text, "middle", "600", "TransferTo(successor)")
	c.stroke(offered, 40, offered, 246)
	c.label(first, 36, 13, c.text, "middle", "600", "the term ends")
	c.note(done+8, 62, "start", "unlocks if the successor is still", "the first: one statement")
	c.stroke(first, 86, first, 140)

	lane(160, "PostgreSQL's", "queue")
	c.bar(left, 140, queued-left-2, height, c.quiet, c.on, "others wait, or nobody")
	c.bar(queued, 140, first-queued-2, height, c.quiet, c.on, "… and the successor")
	c.bar(first, 140, done-first-1, height, c.good, c.onGood, "the successor is the first")
	c.note(queued+4, 196, "start", "those before it are sent to the end")
	c.arrow(done, 86, done, 228)

	lane(254, "successor")
	c.bar(left, 230, queued-left-2, height, c.quiet, c.on, "follows: polls, or waits in the queue")
	c.bar(queued, 230, done-queued-1, height, c.warn, c.onWarn, "waits in the server, as long as the offer stands")
	c.bar(done, 230, right-done, height, c.good, c.onGood, "leads, some 3 ms later")
	c.note(offered+6, 290, "start", "finds the offer at its next attempt, or at once with a notifier")

	c.note(left, 326, "start",
		"The successor does not come within one lease: the term is resigned without it, and the error is ErrNoSuccessor.",
		"It is lost while the work returns: the lock is kept for it for one heartbeat interval, or a second, more.")
}
