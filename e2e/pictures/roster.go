package main

// roster draws who writes the roster, who reads it, and what is in it.
func roster(c *canvas) {
	c.title = "The elector tells a hook, which notes it; one goroutine writes two tables; the page reads them, and asks pg_locks who leads. The elector never reads the tables."
	c.width, c.height = 900, 470

	// The process.
	c.label(30, 28, 15, c.text, "start", "600", "your process")
	c.state(30, 44, 230, 76, "elector", "heartbeats on its session")
	c.arrow(145, 120, 145, 168)
	c.note(156, 149, "start", "events")
	c.state(30, 170, 230, 76, "Roster, the hook", "notes it, and returns at once")
	c.arrow(145, 246, 145, 294)
	c.note(156, 275, "start", "at most 1024 terms")
	c.state(30, 296, 230, 92, "one goroutine", "at each change, and each 15 s;", "what fails is tried again")

	// The server.
	c.label(370, 28, 15, c.text, "start", "600", "PostgreSQL")
	c.state(370, 44, 230, 76, "pg_locks", "who leads: the only truth")
	c.arrow(260, 82, 368, 82)
	c.note(314, 72, "middle", "the lock")
	c.table(370, 150, 230, "roster_candidates", "key, candidate_id", "election, version, metadata", "since, health", "published_at, expires_at, left_at")
	c.table(370, 300, 230, "roster_terms", "key, token", "election, candidate_id", "elected_at, ended_at", "reason, error")
	c.arrow(260, 320, 315, 320, 315, 212, 368, 212)
	c.arrow(260, 362, 368, 362)

	// The readers.
	c.label(710, 28, 15, c.text, "start", "600", "who looks")
	c.state(710, 150, 170, 92, "dashboard", "a page, at most", "one look per second")
	c.state(710, 296, 170, 92, "you", "Candidates, Terms,", "or SQL")
	c.arrow(710, 180, 655, 180, 655, 82, 602, 82)
	c.arrow(710, 212, 602, 212)
	c.arrow(710, 226, 672, 226, 672, 350, 602, 350)
	c.arrow(710, 372, 602, 372)
	c.note(450, 456, "middle", "No arrow leads back to the elector: without the tables, everybody leads as before.")
}

// table is a box with a name and the columns below it; the first line is the key.
func (c *canvas) table(x, y, w float64, name, key string, columns ...string) {
	h := 62 + 17*float64(len(columns))
	c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3" fill="%s" stroke="%s" stroke-width="1.5"/>`, x, y, w, h, c.box, c.line)
	c.label(x+14, y+24, 15, c.text, "start", "600", name)
	c.add(`<path d="M%.1f %.1f h%.1f" stroke="%s"/>`, x, y+34, w, c.line)
	c.label(x+14, y+52, 13, c.text, "start", "600", key)
	c.note(x+14, y+70, "start", columns...)
}
