package main

// states draws what a candidate does under Run.
func states(c *canvas) {
	c.title = "A candidate follows until it is elected, leads until its term ends, steps down, and follows again."
	c.width, c.height = 900, 440

	// Following.
	c.dot(24, 115, false)
	c.arrow(30, 115, 58, 115)
	c.state(60, 70, 210, 92, "Following", "asks once per retry interval,", "or waits in the server")
	c.arrow(115, 70, 115, 40, 215, 40, 215, 68)
	c.note(165, 28, "middle", "busy, or failed: wait, try again")

	// Elected.
	c.arrow(270, 115, 438, 115)
	c.note(354, 82, "middle", "granted: verified in", "pg_locks, token read")

	// Leading.
	c.state(440, 70, 440, 92, "Leading", "your lead function runs, heartbeats prove the session,", "and the lease has a timer of its own")
	for i, why := range [][]string{{"lead", "returned"}, {"heartbeat", "failed"}, {"validity", "ran out"}, {"shutdown,", "or Resign"}} {
		x := 466 + 108*float64(i)
		c.arrow(x, 162, x, 268)
		c.note(x+9, 208, "start", why...)
	}

	// Stepping down.
	c.state(440, 270, 440, 92, "Stepping down", "cancel the context → the work returns → OnDemoted", "→ unlock → discard the session")
	c.arrow(440, 296, 225, 296, 225, 164)
	c.note(334, 256, "middle", "the term was lost, or", "somebody called Resign:", "campaign again")

	// The ends of Run.
	c.arrow(440, 336, 140, 336, 140, 392)
	c.note(334, 356, "middle", "lead returned,", "or shutdown")
	c.arrow(105, 162, 105, 402, 126, 402)
	c.note(96, 250, "end", "refused", "server,", "gave up,", "or", "shutdown")
	c.dot(140, 403, true)
	c.label(158, 408, 14, c.text, "start", "500", "Run returns")
}
