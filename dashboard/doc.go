// Package dashboard is a page that shows the elections of a database: who leads,
// who stands for election and how it fares, and who led when. It is an
// http.Handler to be mounted beside a service's own pages.
//
// # What is not promised
//
//   - It guards nothing: whoever can reach the page can read it. Mount it behind
//     the login that your other pages have.
//   - It does nothing: it answers GET and HEAD only, and writes nothing.
//   - It knows what the server knows. Without a roster that is who holds a lock and
//     who waits for one: no candidate that polls, no health, and no history. The
//     server knows keys and not names, so name the elections ([WithElections]).
//
// # How to mount it
//
//	page, err := dashboard.New(pool, dashboard.WithRoster(candidates))
//	mux.Handle("/admin/elections/", page)
//
// Any prefix will do: the page has no address in it but its own. It loads nothing
// from elsewhere and runs no script, which its Content-Security-Policy says too, and
// whatever a candidate tells of itself is shown as text. It refreshes itself by
// a meta element; a link pauses that.
//
// # What it costs
//
// The server is asked once per second at the most, however many look: five
// statements one after another, three without a roster. If that takes longer than
// a tenth of a second, it is asked less often, so that the page costs no more than a
// tenth of a connection. While nobody looks, it is not asked.
//
// On a dead link a driver's call may not return, whatever its context says. After 5 s the
// page leaves such a call alone, says how old what it shows is, and asks on another
// connection: after another 5 s, and with each call that is stuck after twice the time,
// up to 5 min. It asks no more while half of the pool's connections are stuck, or 16.
//
// What candidates tell is cut: each text after 200 bytes, the metadata of a candidate
// after 20 pairs, and that of all candidates after 128 KiB.
package dashboard
