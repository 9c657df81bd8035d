//go:build unix

// Command pictures makes the pictures of the documents.
//
//	draw DIRECTORY        draws those that adapt to light and dark pages. It needs only Go.
//	record FILE           records the metrics of an election with faults, which draw draws
//	photograph DIRECTORY  takes screenshots of the dashboard, in a browser
//	film FILE             runs the demo, and writes an SVG that plays it
package main

import (
	"context"
	"fmt"
	"html"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	commands := map[string]func(ctx context.Context, argument string) error{"draw": draw, "record": record, "photograph": photograph, "film": film}
	if len(os.Args) < 3 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: pictures draw DIRECTORY | record FILE | photograph DIRECTORY | film FILE")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := commands[os.Args[1]](ctx, os.Args[2])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func draw(_ context.Context, dir string) error {
	for name, picture := range pictures(dir) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(picture), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pictures returns the pictures of docs/pictures, which is dir, by file name.
func pictures(dir string) map[string]string {
	all := map[string]string{}
	gaps := readGaps(filepath.Join(dir, "../../bench/results.json"))
	for name, draw := range map[string]func(*canvas){"states": states, "lease": leaseArithmetic, "metrics": metrics, "roster": rosterTables, "handover": handOver, "shards": shards, "failover": gaps.failover, "failover-phone": gaps.failoverOnPhone} {
		c := &canvas{palette: light}
		draw(c)
		all[name+".svg"] = c.svg()
	}
	return all
}

// palette is the colours of one theme, named by their meaning.
type palette struct {
	page, text, faint, line, box string
	good, warn, bad, quiet       string // fills
	onGood, onWarn, onBad, on    string // text upon them
}

// Pictures are drawn in light colours. On a dark page a style replaces each by the dark one.
var (
	light = palette{page: "#ffffff", text: "#1f2328", faint: "#59636e", line: "#59636e", box: "#f6f8fa",
		good: "#aceebb", warn: "#fae17d", bad: "#ffcecb", quiet: "#d1d9e0",
		onGood: "#044f1e", onWarn: "#4d2d00", onBad: "#82061e", on: "#1f2328"}
	inTheDark = map[string]string{"#ffffff": "#0d1117", "#1f2328": "#f0f6fc", "#59636e": "#9198a1", "#f6f8fa": "#151b23",
		"#aceebb": "#0f5323", "#fae17d": "#5a3a00", "#ffcecb": "#78191b", "#d1d9e0": "#2f3742",
		"#044f1e": "#aff5b4", "#4d2d00": "#f2cc60", "#82061e": "#ffc1ba"}
)

// narrow is the width of a picture whose texts, of 13 units or more, can be read on a phone.
const narrow = 400

// canvas collects the elements of a picture.
type canvas struct {
	palette
	title         string
	width, height int
	parts         strings.Builder
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.parts, format+"\n", args...) }

// label writes lines of text, one below the other. anchor is start, middle or end.
func (c *canvas) label(x, y float64, size int, colour, anchor, weight string, lines ...string) {
	for i, line := range lines {
		c.add(`<text x="%.1f" y="%.1f" font-size="%d" font-weight="%s" fill="%s" text-anchor="%s">%s</text>`,
			x, y+float64(i*(size+4)), size, weight, colour, anchor, html.EscapeString(line))
	}
}

// note writes small explanatory text.
func (c *canvas) note(x, y float64, anchor string, lines ...string) {
	c.label(x, y, 13, c.faint, anchor, "400", lines...)
}

// state draws a rounded box with a name and lines below it.
func (c *canvas) state(x, y, w, h float64, name string, lines ...string) {
	c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="10" fill="%s" stroke="%s" stroke-width="1.5"/>`, x, y, w, h, c.box, c.line)
	c.label(x+w/2, y+28, 17, c.text, "middle", "600", name)
	c.note(x+w/2, y+50, "middle", lines...)
}

// bar draws a filled part of a time line.
func (c *canvas) bar(x, y, w, h float64, fill, ink string, lines ...string) {
	c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3" fill="%s"/>`, x, y, w, h, fill)
	top := y + h/2 + 5 - float64(len(lines)-1)*8.5
	c.label(x+w/2, top, 13, ink, "middle", "500", lines...)
}

// arrow draws a line along the points that ends with an arrowhead.
func (c *canvas) arrow(points ...float64) { c.path(` marker-end="url(#head)"`, points...) }

// stroke draws a dashed line along the points.
func (c *canvas) stroke(points ...float64) { c.path(` stroke-dasharray="3 4"`, points...) }

func (c *canvas) path(more string, points ...float64) {
	d := fmt.Sprintf("M%.1f %.1f", points[0], points[1])
	for i := 2; i < len(points); i += 2 {
		d += fmt.Sprintf(" L%.1f %.1f", points[i], points[i+1])
	}
	c.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5" stroke-linejoin="round"%s/>`, d, c.line, more)
}

// dot draws a start mark, or with a ring an end mark.
func (c *canvas) dot(x, y float64, ring bool) {
	if ring {
		c.add(`<circle cx="%.1f" cy="%.1f" r="9" fill="none" stroke="%s" stroke-width="1.5"/>`, x, y, c.line)
	}
	c.add(`<circle cx="%.1f" cy="%.1f" r="5" fill="%s"/>`, x, y, c.line)
}

func (c *canvas) svg() string {
	var dark strings.Builder
	for _, colour := range slices.Sorted(maps.Keys(inTheDark)) {
		fmt.Fprintf(&dark, `[fill="%s"]{fill:%s}[stroke="%[1]s"]{stroke:%[2]s}`, colour, inTheDark[colour])
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif">
<title>%s</title>
<style>@media (prefers-color-scheme: dark){%s}</style>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="%s"/></marker></defs>
<rect width="100%%" height="100%%" rx="10" fill="%s"/>
%s</svg>
`, c.width, c.height, c.width, c.height, html.EscapeString(c.title), dark.String(), c.line, c.page, c.parts.String())
}

// states draws the states of a candidate under Run.
func states(c *canvas) {
	c.title = "A candidate follows until it is elected, leads until its term ends, steps down, and follows again."
	c.width, c.height = narrow, 622

	// Following.
	c.dot(140, 16, false)
	c.arrow(140, 22, 140, 42)
	c.state(28, 44, 240, 86, "Following", "the deputy tries each 100 ms,", "others each retry interval")
	c.arrow(268, 68, 294, 68, 294, 108, 270, 108)
	c.note(302, 66, "start", "busy, or", "failed: wait,", "try again")

	// Elected.
	c.arrow(56, 130, 56, 234)
	c.note(66, 152, "start", "granted: verified in", "pg_locks, token read")

	// Leading.
	c.state(28, 236, 296, 102, "Leading", "your lead function runs, heartbeats", "prove the session, and the lease", "has a timer of its own")
	for i, why := range [][]string{{"lead", "returned"}, {"heartbeat", "failed"}, {"validity", "ran out"}, {"shutdown,", "or Resign"}} {
		x := 40 + 72*float64(i)
		c.arrow(x, 338, x, 400)
		c.note(x+6, 364, "start", why...)
	}

	// Stepping down.
	c.state(28, 402, 296, 102, "Stepping down", "cancel the context → the work returns", "→ OnDemoted → unlock", "→ discard the session")
	c.arrow(324, 450, 342, 450, 342, 170, 250, 170, 250, 132)
	c.note(334, 190, "end", "the term was lost, or", "somebody called Resign:", "campaign again")

	// The ends of Run.
	c.arrow(120, 504, 120, 546)
	c.note(132, 530, "start", "lead returned, or shutdown")
	c.arrow(28, 90, 12, 90, 12, 557, 109, 557)
	c.dot(120, 557, true)
	c.label(138, 562, 14, c.text, "start", "500", "Run returns")
	c.note(28, 592, "start", "from Following: the server is refused,", "it gave up, or shutdown")
}

// The defaults of package elector, in seconds.
const (
	lease     = 10.0
	heartbeat = lease / 5
	drain     = lease / 5
	margin    = lease / 10
	validity  = lease - drain - margin
	deputy    = 0.1 // the deputy's interval
)

// leaseArithmetic draws what happens after a leader falls silent. It is narrow, as all pictures
// with phone-sized texts are.
func leaseArithmetic(c *canvas) {
	c.title = "After its last answered heartbeat a term is valid for 7 s; its work has 2 s to return; 1 s is margin; then the server ends the session, and the deputy is elected."
	c.width, c.height = narrow, 504
	const (
		left   = 14.0
		second = 31.0
		answer = 0.4  // when the server has answered, for the eye
		next   = 10.5 // when the deputy is elected, for the eye
		height = 38.0
	)
	at := func(s float64) float64 { return left + s*second }
	lane := func(y float64, name string) { c.label(left, y, 14, c.text, "start", "600", name) }

	// The heartbeats.
	lane(22, "heartbeats")
	c.label(at(0), 44, 13, c.text, "start", "600", "sent: the last one that is answered")
	c.arrow(at(0), 52, at(0), 84)
	c.add(`<path d="M%.1f 58 V80 M%.1f 58 L%.1f 68 M%.1f 58 L%.1f 68" stroke="%s" stroke-width="1.5"/>`,
		at(heartbeat), at(heartbeat)-5, at(heartbeat)+5, at(heartbeat)+5, at(heartbeat)-5, c.line)
	c.note(at(heartbeat)+12, 73, "start", "not answered: a dead link, a frozen process")

	// The leader.
	lane(108, "this leader")
	c.bar(at(0), 116, validity*second, height, c.good, c.onGood, fmt.Sprintf("the term is valid: %g s", validity))
	c.bar(at(validity)+1, 116, drain*second-2, height, c.warn, c.onWarn, "drain:", fmt.Sprintf("%g s", drain))
	c.bar(at(validity+drain), 116, margin*second, height, c.quiet, c.on, fmt.Sprintf("%g s", margin))
	c.note(at(lease)+6, 140, "start", "margin")
	c.stroke(at(validity), 154, at(validity), 212)
	c.note(at(validity)-8, 174, "end", "the context is cancelled,", "IsLeader says false, and the", "work has the drain to return")
	c.stroke(at(validity+drain), 154, at(validity+drain), 236)
	c.note(at(validity+drain)-8, 232, "end", "work that still runs is reported")

	// The server.
	lane(264, "PostgreSQL")
	c.bar(at(answer), 272, lease*second, height, c.quiet, c.on, fmt.Sprintf("idle_session_timeout = the lease, %g s:", lease), "the session, and with it the lock, is kept")
	c.stroke(at(lease), 116, at(lease), 336)
	c.label(at(lease)-6, 330, 13, c.text, "end", "600", "sent + lease: not before here")
	c.note(at(answer), 350, "start", "the timer starts when the server has answered")

	// The next leader.
	lane(382, "deputy")
	for s := 0.0; s < next; s += deputy {
		c.add(`<path d="M%.1f 394 V416" stroke="%s" stroke-width="1" opacity="0.55"/>`, at(s), c.line)
	}
	c.bar(at(next), 388, 12*second-next*second, height-4, c.good, c.onGood, "leads")
	c.note(at(0), 436, "start", fmt.Sprintf("tries the lock each %g s: busy", deputy))
	c.note(at(0), 453, "start", fmt.Sprintf("elected about %g s after the answer at the latest", lease+deputy))
	c.note(at(0), 478, "start", fmt.Sprintf("The defaults: lease %g s, heartbeat interval %g s,", lease, heartbeat), fmt.Sprintf("drain %g s, margin %g s, deputy interval %g s", drain, margin, deputy))
}

// handOver draws how a leader transfers leadership to a successor.
func handOver(c *canvas) {
	c.title = "The leader offers its lock to a successor and goes on leading until the successor is the first in the server's queue; then its work returns, it unlocks, and the server hands the lock to the successor."
	c.width, c.height = narrow, 394
	const (
		left    = 14.0
		height  = 38.0
		offered = 45.0  // TransferTo
		queued  = 108.0 // the successor is in the queue
		first   = 190.0 // and the first of it
		done    = 269.0 // the work has returned
		right   = 388.0
	)
	lane := func(y float64, name string) { c.label(offered+8, y, 14, c.text, "start", "600", name) }

	c.label(left, 22, 14, c.text, "start", "600", "leader")
	c.label(left, 44, 13, c.text, "start", "600", "TransferTo(successor)")
	c.stroke(offered, 50, offered, 294)
	c.bar(left, 54, first-left, height, c.good, c.onGood, "the term goes on")
	c.bar(first+1, 54, done-first-2, height, c.warn, c.onWarn, "its work", "returns")
	c.label(first, 44, 13, c.text, "start", "600", "the term ends")
	c.note(done+8, 66, "start", "unlocks if the", "successor is", "still the first")
	c.stroke(first, 92, first, 128)

	lane(120, "server's queue")
	c.bar(left, 128, queued-left-2, height, c.quiet, c.on, "others wait,", "or nobody")
	c.bar(queued, 128, first-queued-2, height, c.quiet, c.on, "… and the", "successor")
	c.bar(first, 128, done-first-1, height, c.good, c.onGood, "it is", "the first")
	c.note(queued, 184, "start", "those before it are", "sent to the end")
	c.arrow(done, 92, done, 228)

	lane(222, "successor")
	c.bar(left, 230, queued-left-2, height, c.quiet, c.on, "follows")
	c.bar(queued, 230, done-queued-1, height, c.warn, c.onWarn, "waits while", "the offer stands")
	c.bar(done, 230, right-done, height, c.good, c.onGood, "leads,", "some 3 ms later")
	c.note(offered+6, 288, "start", "finds the offer at its next attempt,", "or at once with a notifier")

	c.note(left, 332, "start",
		"No successor within one lease: the offer is taken back,",
		"the term goes on, and the error is ErrNoSuccessor.",
		"It is lost while the work returns: the lock is kept",
		"for one heartbeat interval, or a second, more.")
}

// rosterTables draws who writes the roster, who reads it, and what it contains.
func rosterTables(c *canvas) {
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
	c.table(370, 150, 230, "roster_candidates", "key, candidate_id", "election, version, metadata", "since, health, healthy", "published_at, expires_at, left_at")
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

// table draws a box with a name and the columns below it; the first line is the key.
func (c *canvas) table(x, y, w float64, name, key string, columns ...string) {
	h := 62 + 17*float64(len(columns))
	c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3" fill="%s" stroke="%s" stroke-width="1.5"/>`, x, y, w, h, c.box, c.line)
	c.label(x+14, y+24, 15, c.text, "start", "600", name)
	c.add(`<path d="M%.1f %.1f h%.1f" stroke="%s"/>`, x, y+34, w, c.line)
	c.label(x+14, y+52, 13, c.text, "start", "600", key)
	c.note(x+14, y+70, "start", columns...)
}
